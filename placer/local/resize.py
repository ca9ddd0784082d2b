"""A change of what a pod has that runs as processes of this machine: registered anew with its node's broker.

What always holds: the broker's record is the truth, which the next placer adopts, so a change that was cut off is
known again; room is taken in the ledger before the broker is asked, and given back after it.
"""

from dataclasses import replace

import msgspec

from placer.core.ledger import Booking, Ledger
from placer.core.registration import adopted
from placer.core.resize.change import Change, NotNowError, asked_field, change_of
from placer.core.resize.room import check_room
from placer.core.view import NodeView
from plimsoll.broker.client import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.broker.wire import Description, Register
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize, Resizing


async def resize(
    request: Resize, pod: PodUid, broker: BrokerClient, ledger: Ledger, view: NodeView | None
) -> Resizing:
    """Check a change against the ledger, count it, and have the broker apply it.

    Cancelling leaves open whether it was applied; the ledger counts the larger of both.

    Raises:
        InputError: it cannot be; nothing was changed.
        NotNowError: it could not be judged, or the broker is away.
    """
    described = await _described(broker)
    booking = ledger.booking(pod)
    registered = _registered(described, pod)
    if registered is None or booking is None:
        name = f"{request.namespace}/{request.pod}"
        raise InputError("pod", name, "holds no GPU now", "name a running pod with a line")
    change = change_of(booking, request, _in_force(described, booking))
    if change.before == change.after:
        raise InputError(*asked_field(request), "is what it has already", "give another value")
    check_room(change, request, ledger, view)
    await _apply(broker, _changed(registered, change), change, ledger)
    return Resizing(
        node=booking.node, pod=pod, container=change.container, before=change.before, after=change.after
    )


async def _apply(broker: BrokerClient, asked: Register, change: Change, ledger: Ledger) -> None:
    ledger.restore(change.larger)
    settled = change.larger
    try:
        await broker.register(asked)
        settled = change.new
    except RefusedError as error:
        settled = change.counted
        raise InputError("pod", asked.name, f"was refused by its broker ({error})", "see its log") from error
    except BrokerAwayError as error:
        raise NotNowError(f"{error}; ask again") from error
    finally:
        if ledger.booking(asked.pod) is not None:  # it may have ended meanwhile
            ledger.restore(settled)


async def _described(broker: BrokerClient) -> Description:
    try:
        return await broker.describe()
    except BrokerAwayError as error:
        raise NotNowError(f"{error}; ask again") from error


def _registered(described: Description, pod: PodUid) -> Register | None:
    """What the broker has registered of a pod, or None."""
    uses = [use for use in described.containers if use.pod == pod]
    if not uses:
        return None
    containers = tuple(use.container for use in uses)
    return Register(pod=pod, namespace=uses[0].namespace, name=uses[0].pod_name, containers=containers)


def _in_force(described: Description, booking: Booking) -> Booking:
    """The pod's booking by what is registered, which the ledger may be ahead of."""
    found = (other for _, other in adopted(booking.node, described) if other.pod == booking.pod)
    return replace(next(found), owner=booking.owner)


def _changed(registered: Register, change: Change) -> Register:
    containers = tuple(
        msgspec.structs.replace(one, lines=change.after) if one.name == change.container else one
        for one in registered.containers
    )
    return msgspec.structs.replace(registered, containers=containers)
