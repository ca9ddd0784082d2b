"""A new line for a pod that runs as processes of this machine: registered anew with its node's broker.

What always holds: the broker's record is the truth, which the next placer adopts, so a change that was cut off is
known again; room is taken in the ledger before the broker is asked, and given back after it.
"""

import msgspec

from placer.core.ledger import Ledger
from placer.core.resize import FIELD, LineChange, NotNowError, check_room, line_change
from placer.core.view import NodeView
from plimsoll.brokerclient import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.brokerwire import ContainerLines, Register
from plimsoll.errors import InputError
from plimsoll.names import GpuUuid, PodUid
from plimsoll.rpc import Resize, Resizing


async def resize(
    request: Resize, pod: PodUid, broker: BrokerClient, ledger: Ledger, view: NodeView | None
) -> Resizing:
    """Check a new line against the ledger, count it, and have the broker apply it.

    Cancelling leaves open whether it was applied; the ledger counts the larger line.

    Raises:
        InputError: it cannot be; nothing was changed.
        NotNowError: it could not be judged, or the broker is away.
    """
    registered = await _registered(broker, pod)
    booking = ledger.booking(pod)
    if registered is None or booking is None:
        name = f"{request.namespace}/{request.pod}"
        raise InputError("pod", name, "holds no GPU now", "name a running pod with a line")
    change = line_change(booking, request.container, request.gpu_memory)
    before = _lines(registered, change.container)
    if before == change.after:
        raise InputError(FIELD, request.gpu_memory, "is the line that it has already", "give another size")
    check_room(change, request.gpu_memory, ledger, view)
    await _apply(broker, _changed(registered, change), change, ledger)
    return Resizing(node=booking.node, pod=pod, container=change.container, before=before, lines=change.after)


async def _apply(broker: BrokerClient, asked: Register, change: LineChange, ledger: Ledger) -> None:
    ledger.restore(change.larger)
    settled = change.larger
    try:
        await broker.register(asked)
        settled = change.new
    except RefusedError as error:
        settled = change.old
        raise InputError("pod", asked.name, f"was refused by its broker ({error})", "see its log") from error
    except BrokerAwayError as error:
        raise NotNowError(f"{error}; ask again") from error
    finally:
        if ledger.booking(asked.pod) is not None:  # it may have ended meanwhile
            ledger.restore(settled)


async def _registered(broker: BrokerClient, pod: PodUid) -> Register | None:
    """What the broker has registered of a pod, or None."""
    try:
        description = await broker.describe()
    except BrokerAwayError as error:
        raise NotNowError(f"{error}; ask again") from error
    uses = [use for use in description.containers if use.pod == pod]
    if not uses:
        return None
    containers = tuple(use.container for use in uses)
    return Register(pod=pod, namespace=uses[0].namespace, name=uses[0].pod_name, containers=containers)


def _lines(registered: Register, container: str) -> dict[GpuUuid, int]:
    return {
        line.gpu: line.line_bytes
        for one in registered.containers
        if one.name == container
        for line in one.lines
    }


def _changed(registered: Register, change: LineChange) -> Register:
    containers = tuple(
        _at(one, change) if one.name == change.container else one for one in registered.containers
    )
    return msgspec.structs.replace(registered, containers=containers)


def _at(container: ContainerLines, change: LineChange) -> ContainerLines:
    lines = tuple(
        msgspec.structs.replace(line, line_bytes=change.after[line.gpu]) for line in container.lines
    )
    return msgspec.structs.replace(container, lines=lines)
