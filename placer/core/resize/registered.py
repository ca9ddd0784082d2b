"""The resize of a pod that a broker has registered, outside of Kubernetes.

What always holds: the broker's registration is the truth, from which the bookings are made. Nothing is changed here:
the caller registers `RegisteredResize.registration` anew.
"""

from dataclasses import dataclass

import msgspec

from placer.core.ledger import Ledger
from placer.core.registration import registered
from placer.core.resize.change import ResizeChange, asked_field, change_of
from placer.core.resize.room import check_room
from placer.core.view import NodeView
from plimsoll.broker.wire import Description, Register
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.placer_api.rpc import Resize, Resizing


@dataclass(frozen=True, slots=True)
class RegisteredResize:
    """A resize that promises leave room for.

    Attributes:
        change: the pod's booking before and after.
        registration: the request to the broker that puts the change in force.
        undo: the registration before. A broker that refuses `registration` for its full disk has put it in force, and
            would lose it at its next start, so the caller registers this one then.
    """

    change: ResizeChange
    registration: Register
    undo: Register

    @property
    def answer(self) -> Resizing:
        """The answer to the request, once the broker has registered the change."""
        new, change = self.change.new, self.change
        return Resizing(
            node=new.node, pod=new.pod, container=change.container, before=change.before, after=change.after
        )

    def refused_by(self, broker: PlimsollError) -> InputError:
        """The error to answer the request with, where the broker refused the registration."""
        return InputError(
            "pod", self.registration.name, f"was refused by its broker ({broker})", "see its log"
        )


def registered_resize(
    request: Resize, pod: PodUid, description: Description, ledger: Ledger, view: NodeView | None
) -> RegisteredResize:
    """Check a resize of a registered pod.

    Args:
        request: the change that is asked.
        pod: the uid of the pod that the request names.
        description: the registrations of the pod's broker now.
        ledger: the bookings of all pods; not changed.
        view: the node as last reported; None before its first report.

    Raises:
        InputError: the pod holds no GPU, or cannot have the change.
        NotNowError: the node's report is missing, or lacks the GPU.
    """
    booking, before = ledger.booking(pod), registered(description, pod)
    if before is None or booking is None:
        name = f"{request.namespace}/{request.pod}"
        raise InputError("pod", name, "holds no GPU now", "name a running pod with a line")
    change = change_of(booking, request)
    if change.before == change.after:
        raise InputError(*asked_field(request), "is what it has already", "give another value")
    check_room(change, request, ledger, view)
    return RegisteredResize(change, _changed(before, change), undo=before)


def _changed(before: Register, change: ResizeChange) -> Register:
    containers = tuple(
        msgspec.structs.replace(one, lines=change.after) if one.name == change.container else one
        for one in before.containers
    )
    return msgspec.structs.replace(before, containers=containers)
