"""The check that promises leave room for a resize.

What always holds: only a value that is asked and raised is checked. Every raise is checked against the promises to
all pods, so after an allowed raise no GPU's shares pass 100, and promised memory stays within the room.
"""

from placer.core.booking import Grant
from placer.core.ledger import Ledger
from placer.core.resize.change import MEMORY, SHARE, NotNowError, ResizeChange, grants_of
from placer.core.room import room_on
from placer.core.view import NodeView
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import format_bytes, write_bytes


def check_room(change: ResizeChange, request: Resize, ledger: Ledger, view: NodeView | None) -> None:
    """Refuse a raise for which promises leave no room.

    Args:
        change: the change; its `counted` is the pod's booking in the ledger now.
        request: the request of the change, for the messages.
        ledger: the bookings of all pods.
        view: the node as last reported; None before its first report. A check of shares needs no report.

    Raises:
        InputError: a GPU lacks the room; the message names the most that fits.
        NotNowError: the node's report is missing, or lacks the GPU.
    """
    counted = {grant.gpu: grant for grant in grants_of(change.counted, change.container)}
    pairs = [(counted[new.gpu], new) for new in grants_of(change.new, change.container)]
    if request.gpu_memory is not None:
        for old, new in pairs:
            if new.line_bytes > old.line_bytes:
                _check_memory(change, old, new, request.gpu_memory, ledger, view)
    if request.gpu_share is not None and any(new.share_pct > old.share_pct for old, new in pairs):
        _check_share(change, pairs, request.gpu_share, ledger)


def _check_memory(
    change: ResizeChange, old: Grant, new: Grant, asked: str, ledger: Ledger, view: NodeView | None
) -> None:
    seen = next((one for one in view.gpus if one.uuid == new.gpu), None) if view is not None else None
    if seen is None:
        raise NotNowError(f"no report shows {new.gpu} on {change.new.node}; check its monitor, and ask again")
    measured = seen.measured_bytes.get(change.new.pod, 0)
    counted = max(ledger.expected_bytes(change.counted, new.gpu), measured)
    expected = ledger.expected_bytes(change.new, new.gpu)
    free_bytes = room_on(change.new.node, seen, ledger).promisable_bytes
    # A pod that is promised more than the card has would wait for its own memory.
    if max(expected, measured) - counted <= free_bytes and expected <= max(seen.usable_bytes, counted):
        return
    others = ledger.expected_bytes_beside(change.new, new)
    fitting = min(free_bytes + counted, seen.usable_bytes) - others if free_bytes >= 0 else 0
    most = max(fitting, old.line_bytes)
    problem = f"does not fit: promises leave {format_bytes(max(free_bytes, 0))} free on {new.gpu}"
    remedy = f"give at most {write_bytes(most * len(change.after))} in total, or make room there"
    raise InputError(MEMORY, asked, problem, remedy)


def _check_share(change: ResizeChange, pairs: list[tuple[Grant, Grant]], asked: str, ledger: Ledger) -> None:
    promised = {new.gpu: ledger.share_pct_beside(change.counted, new) for _, new in pairs}
    fullest = max(promised, key=lambda gpu: promised[gpu])
    old, new = pairs[0]  # the share is the same on each of the container's GPUs
    most = max(100 - promised[fullest], old.share_pct)
    if new.share_pct > most:
        problem = f"does not fit: {promised[fullest]} % of {fullest} are promised to others"
        remedy = f"give at most {most * len(pairs)} in total, or make room there"
        raise InputError(SHARE, asked, problem, remedy)
