"""Changing the line of a container that runs: which change was asked, and whether the promises leave room for it.

What always holds: a change is judged for the GPUs the container has, and moves nothing; lowering is always allowed,
also below what is used, as nothing that runs is ever taken away; a container without a declaration has no line of its
own to change.
"""

from dataclasses import dataclass, replace
from typing import Final

from placer.core.ledger import Booking, Grant, Ledger
from placer.core.room import room_on
from placer.core.view import NodeView
from plimsoll.errors import InputError, PlimsollError
from plimsoll.names import ContainerName, GpuUuid
from plimsoll.quantity import format_bytes, parse_whole

FIELD: Final = "gpu-memory"
"""What is wrong in most messages, as the command line names it."""


class NotNowError(PlimsollError):
    """It cannot be judged or carried out now; asking again later may work."""


@dataclass(frozen=True, slots=True)
class LineChange:
    """A pod's booking before and after one of its containers is resized."""

    container: ContainerName
    old: Booking
    new: Booking

    @property
    def before(self) -> dict[GpuUuid, int]:
        """The container's lines as they were, bytes by GPU."""
        return _lines(self.old, self.container)

    @property
    def after(self) -> dict[GpuUuid, int]:
        """Its lines as they shall be."""
        return _lines(self.new, self.container)

    @property
    def larger(self) -> Booking:
        """What counts while either may hold: the room is taken before a raise, and given back after a lowering."""
        return self.new if sum(self.after.values()) > sum(self.before.values()) else self.old


def line_change(booking: Booking, container: ContainerName | None, gpu_memory: str) -> LineChange:
    """What a pod's booking becomes.

    Args:
        booking: the pod's.
        container: whose line; None where only one container has a GPU.
        gpu_memory: the new line as a quantity, in total over the container's GPUs.

    Raises:
        InputError: there is no such container, it has no declared line, or the size cannot be.
    """
    name = _container(booking, container)
    grants = [grant for grant in booking.grants if grant.container == name]
    _refuse_undeclared(name, grants[0])
    total_bytes = parse_whole(gpu_memory, FIELD, "bytes")
    if total_bytes == 0:
        raise InputError(FIELD, gpu_memory, "leaves nothing", "give 1 byte or more, or delete the pod")
    if total_bytes % len(grants):
        problem, remedy = f"does not divide evenly by {len(grants)} GPUs", f"give a multiple of {len(grants)}"
        raise InputError(FIELD, gpu_memory, problem, remedy)
    line_bytes = total_bytes // len(grants)
    after = tuple(
        replace(grant, memory_bytes=line_bytes, line_bytes=line_bytes) if grant.container == name else grant
        for grant in booking.grants
    )
    return LineChange(name, booking, replace(booking, grants=after))


def check_room(change: LineChange, gpu_memory: str, ledger: Ledger, view: NodeView | None) -> None:
    """Refuse a raise that promises leave no room for.

    Args:
        change: its `old` is what the ledger counts now.
        gpu_memory: as asked, for the message.
        ledger: everybody's bookings.
        view: the node as last reported; None if it never was.

    Raises:
        InputError: a GPU lacks the room; the message names the most that fits.
        NotNowError: the node's report is missing, or lacks the GPU.
    """
    for gpu, line_bytes in change.after.items():
        if line_bytes > change.before[gpu]:
            _check_gpu(change, gpu, gpu_memory, ledger, view)


def _check_gpu(
    change: LineChange, gpu: GpuUuid, gpu_memory: str, ledger: Ledger, view: NodeView | None
) -> None:
    seen = next((one for one in view.gpus if one.uuid == gpu), None) if view is not None else None
    if seen is None:
        raise NotNowError(
            f"no report shows {gpu} on {change.old.node}; look after its monitor, and ask again"
        )
    room = room_on(change.old.node, seen, ledger)
    measured = seen.measured_bytes.get(change.old.pod, 0)
    counted = max(ledger.expected_bytes(change.old, gpu), measured)
    expected = ledger.expected_bytes(change.new, gpu)
    free_bytes = room.promisable_bytes
    # A pod that is promised more than the card has would wait for itself.
    if max(expected, measured) - counted <= free_bytes and expected <= max(seen.usable_bytes, counted):
        return
    others = expected - change.after[gpu]  # of the pod's other containers there
    fitting = min(free_bytes + counted, seen.usable_bytes) - others if free_bytes >= 0 else 0
    most = max(fitting, change.before[gpu])
    problem = f"does not fit: promises leave {format_bytes(max(free_bytes, 0))} free on {gpu}"
    remedy = f"give at most {most * len(change.after)} bytes in total, or make room there"
    raise InputError(FIELD, gpu_memory, problem, remedy)


def _container(booking: Booking, wanted: ContainerName | None) -> ContainerName:
    names = list(dict.fromkeys(grant.container for grant in booking.grants))
    if wanted is not None:
        if wanted not in names:
            raise InputError("container", wanted, "has no GPU in this pod", f"name one of {', '.join(names)}")
        return wanted
    if len(names) > 1:
        raise InputError("container", None, "is not given", f"name one of {', '.join(names)}")
    return names[0]


def _refuse_undeclared(name: ContainerName, grant: Grant) -> None:
    if grant.whole:
        remedy = "there is nothing to raise, and to share it recreate the pod with a declared size"
        raise InputError("container", name, "has whole GPUs, all their memory is its own", remedy)
    if grant.memory_bytes is None:
        remedy = "its line is what promises leave free; recreate the pod with a declared size"
        raise InputError("container", name, "is best-effort and declares no memory", remedy)


def _lines(booking: Booking, container: ContainerName) -> dict[GpuUuid, int]:
    return {grant.gpu: grant.line_bytes for grant in booking.grants if grant.container == container}
