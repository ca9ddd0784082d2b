"""The resize of a local pod: room is taken in the ledger before its node's broker is asked, and given back after."""

import contextlib

from placer.core.ledger import Ledger
from placer.core.resize.change import NotNowError
from placer.core.resize.registered import RegisteredResize, registered_resize
from placer.core.view import NodeView
from plimsoll.broker.client import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.ids import PodUid
from plimsoll.placer_api.rpc import Resize, Resizing


async def resize(
    request: Resize, pod: PodUid, broker: BrokerClient, ledger: Ledger, view: NodeView | None
) -> Resizing:
    """Check a resize against the ledger, count it, and have the broker put it in force.

    Cancelling leaves open whether the broker did; the ledger then counts the larger of both.

    Raises:
        InputError: the pod cannot have the change; nothing was changed.
        NotNowError: the resize could not be judged, or the broker is away.
    """
    try:
        checked = registered_resize(request, pod, await broker.describe(), ledger, view)
        await _apply(checked, broker, ledger)
    except BrokerAwayError as error:
        raise NotNowError(f"{error}; ask again") from error
    return checked.answer


async def _apply(checked: RegisteredResize, broker: BrokerClient, ledger: Ledger) -> None:
    change = checked.change
    ledger.restore(change.larger)
    settled = change.larger
    try:
        await broker.register(checked.registration)
        settled = change.new
    except RefusedError as error:
        with contextlib.suppress(RefusedError):
            await broker.register(checked.undo)
        settled = change.counted
        raise checked.refused_by(error) from error
    finally:
        if ledger.booking(change.new.pod) is not None:  # the pod may have ended meanwhile
            ledger.restore(settled)
