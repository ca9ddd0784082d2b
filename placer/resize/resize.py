"""Carries a resize out on the API server: the pod's decision, in one write that overwrites no other change.

What always holds: room is taken in the ledger before the write and given back after it. The pod's uid and
resourceVersion are preconditions, so another pod of the same name is never changed and no change is lost. When an
answer is lost, the pod is read again; the result is never guessed. The caller runs one resize at a time.

After a lowering the ledger frees the room before the node's broker has applied the lowering. That is safe: a pod that
gets the room needs its line and share from the same broker, which takes the changes of pods in their order. A broker
that reads the changes from a list has no order; it refuses shares past 100, and tries again when other pods changed.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from placer.core.booking import Booking, decided, start_of
from placer.core.dry_run import GpuDryRun
from placer.core.resize.change import NotNowError, ResizeChange, asked_field, change_of
from placer.core.resize.room import check_room
from placer.decide import Decider
from placer.scheduler.binding.scope import WriteScopes
from placer.scheduler.cache.cache import Cache
from placer.scheduler.pods.nominator import bookings_of
from placer.scheduler.quotas import NamespaceRules
from plimsoll.contract import DECISION, asks_gpu
from plimsoll.decision import Decision, annotations_of, decision_of
from plimsoll.ids import PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod, decode_pod
from plimsoll.kube.names import NAME_PATTERN
from plimsoll.kube.transport import (
    ApiError,
    ConflictError,
    GoneError,
    NotFoundError,
    PatchKind,
    RefusedError,
    TransientError,
    Transport,
)
from plimsoll.lifespan import StartOrder
from plimsoll.locality import StatedLabels
from plimsoll.part.errors import InputError
from plimsoll.part.times import rfc3339
from plimsoll.placer_api.resize_tickets import author_on, ticket_on
from plimsoll.placer_api.rpc import Resize, Resizing, change_shown

ATTEMPTS: Final = 8
"""Writes that meet another change of the pod, or get no clear answer, before the person has to ask again."""
PAUSE_S: Final = 0.2
"""The time between such a write and the next reading of the pod."""

_NAME: Final = re.compile(NAME_PATTERN)


class WithdrawnError(InputError):
    """The ticket for the resize does not stand on the pod any more."""


@dataclass(frozen=True, slots=True)
class KubeResizer:
    """Resizes pods of one cluster.

    Attributes:
        transport: the connection; without the Lease it refuses writes.
        decider: the reports and the ledger.
        cache: the bookings and the nominations.
        scopes: names the pods that are being resized, for the next leader.
        leads: set once this placer is the one that places, and knows all bookings.
        rules: the quotas and limit ranges of namespaces.
        report: tells people that a pod was resized, by whom, and how.
    """

    transport: Transport
    decider: Decider
    cache: Cache
    scopes: WriteScopes
    leads: asyncio.Event
    rules: NamespaceRules
    report: Callable[[Pod, str], None]

    async def resize(self, request: Resize, ticket: str | None = None) -> Resizing:
        """Check a resize against the ledger, count it, and write it on the pod.

        Cancelling leaves open whether it was written. The ledger counts the larger of both until the watch shows the
        pod again. Calls must not overlap.

        Args:
            request: the change.
            ticket: the text of the pod's ticket, which must stand on the pod until the write; None for no ticket.

        Raises:
            WithdrawnError: the ticket does not stand on the pod any more; nothing was changed.
            InputError: the pod cannot have the change; nothing was changed.
            NotNowError: the resize could not be checked or written now.
        """
        if not self.leads.is_set():
            raise NotNowError("the placer has just started and has not seen all pods; ask again")
        rules = await self.rules.read(request.namespace) if _NAME.match(request.namespace) else None
        pod = await self._read(request)
        _check_ticket(pod, ticket)
        change = self._change(pod, request)
        decision = _readable(pod)
        if decision is None or _terms(decision) != _terms_of(change.new):
            if rules is not None:
                self.rules.check(rules, pod, change, request)
            self.check_room(pod, change, request)
            await self._write(pod, change, request, ticket)
            self.report(pod, _note(author_on(pod), change, request))
        elif change.container not in decision.resized:
            # Where it is resized already, an earlier request may have given it these values.
            raise InputError(*asked_field(request), "is what it has already", "give another value")
        return Resizing(
            node=change.new.node,
            pod=change.new.pod,
            container=change.container,
            before=change.before,
            after=change.after,
        )

    def _change(self, pod: Pod, request: Resize) -> ResizeChange:
        name = f"{request.namespace}/{request.pod}"
        if not pod.spec.nodeName:
            remedy = "change its manifest, or wait until it is placed"
            raise InputError("pod", name, "is not placed yet", remedy)
        if pod.status.phase in TERMINAL_PHASES or pod.metadata.deletionTimestamp:
            raise InputError("pod", name, "has ended, or is being deleted", "name a running pod")
        counted = self.decider.ledger.booking(PodUid(pod.metadata.uid))
        if counted is None and asks_gpu(pod):
            raise NotNowError(f"pod {name} is not in the ledger yet; ask again")
        if self.cache.is_assumed(PodUid(pod.metadata.uid)):
            raise NotNowError(f"pod {name} was bound just now, and the watch has not shown it yet; ask again")
        in_force = self.cache.bookings.in_force(pod)
        if counted is None or in_force is None or not in_force.grants:
            raise InputError("pod", name, "was given no GPU by Plimsoll", "name a pod with a line")
        return change_of(counted, request, in_force)

    def check_room(self, pod: Pod, change: ResizeChange, request: Resize) -> None:
        """Refuse a raise for which there is no room now, or that takes room which is held for a nominated pod.

        Raises:
            InputError: the pod, or a nominated one, would lack the room; the message names the most that fits.
            NotNowError: the node's report is missing, or lacks the GPU.
        """
        node = change.new.node
        view = self.decider.reports.view(node)
        check_room(change, request, self.decider.ledger, view)
        held = [one for one in self.cache.nominator.against(pod, node) if one.booking is not None]
        if not held or view is None:  # without a report, no GPU of the node is held
            return
        dry_run = GpuDryRun(view, self.decider.ledger, bookings_of(held))
        victims = frozenset().union(*(one.victims for one in held))
        for one in self.cache.assigned.below(max(one.priority for one in held), node):
            if one.uid != change.new.pod and (one.is_being_preempted or one.uid in victims):
                dry_run.remove(one.uid)
        try:
            check_room(change, request, dry_run.ledger, dry_run.node)
        except InputError as error:
            problem = f"does not fit: room on {node} is held for a nominated pod"
            raise InputError(error.field, error.value, problem, error.remedy) from error

    async def _read(self, request: Resize) -> Pod:
        try:
            return decode_pod(await self.transport.get(_path(request)))
        except NotFoundError as error:
            name = f"{request.namespace}/{request.pod}"
            remedy = "see `kubectl get pods --all-namespaces`"
            raise InputError("pod", name, "does not exist", remedy) from error
        except (ApiError, msgspec.MsgspecError) as error:
            raise NotNowError(f"the pod cannot be read ({error}); ask again") from error

    async def _write(self, pod: Pod, change: ResizeChange, request: Resize, ticket: str | None) -> None:
        bookings, name = self.cache.bookings, f"{request.namespace}/{request.pod}"
        try:
            await self._until_written(pod, change, request, ticket)
        except (InputError, RefusedError) as error:
            bookings.end_resize(change, written=False)
            if isinstance(error, RefusedError):
                remedy = "give the placer's account the right to patch pods"
                raise InputError(
                    f"metadata.annotations[{DECISION}]", "", f"is refused ({error})", remedy
                ) from error
            self.scopes.end_resize(name)
            raise
        except BaseException:
            bookings.doubt_resize(change)  # the pod stays in the scope, as a write may still arrive
            raise
        self.scopes.end_resize(name)
        bookings.end_resize(change, written=True)

    async def _until_written(
        self, pod: Pod, change: ResizeChange, request: Resize, ticket: str | None
    ) -> None:
        """Write until the pod's decision holds the change.

        Raises:
            InputError: the pod is gone.
            RefusedError: the API server does not allow it.
            NotNowError: no write had a clear answer.
        """
        found = _readable(pod)
        info = _wanted(found, change)
        for _ in range(ATTEMPTS):
            self.cache.bookings.begin_resize(change, pod.metadata.resourceVersion)
            await self.scopes.begin_resize(f"{request.namespace}/{request.pod}")
            try:
                await self.transport.patch(_path(request), _patch(pod, info), PatchKind.MERGE)
            except (ConflictError, GoneError, NotFoundError, TransientError):
                await asyncio.sleep(PAUSE_S)
                pod = await self._read(request)
            else:
                return
            if pod.metadata.uid != change.new.pod:
                name = f"{request.namespace}/{request.pod}"
                raise InputError("pod", name, "was deleted meanwhile", "resize the new one")
            now = _readable(pod)
            if now == info:
                return  # written after all, though the answer was lost
            _check_ticket(pod, ticket)  # no earlier write can arrive: the pod has another version since
            if now != found:
                raise NotNowError("what the pod has was changed by somebody else meanwhile; ask again")
        raise NotNowError("the API server gives no clear answer, or the pod changes all the time; ask again")


def _note(author: str, change: ResizeChange, request: Resize) -> str:
    """The text of the event about a resize: who, from, to."""
    lines = (
        f"{change_shown(request, before, after)} on {after.gpu}"
        for before, after in zip(change.before, change.after, strict=True)
    )
    return f"Container {change.container} resized by {author or 'an unnamed user'}: {'; '.join(lines)}"


def _check_ticket(pod: Pod, ticket: str | None) -> None:
    if ticket is not None and ticket_on(pod) != ticket:
        name = pod.full_name
        raise WithdrawnError("pod", name, "no longer has this ticket", "ask again")


def _readable(pod: Pod) -> Decision | None:
    """The pod's decision; None if somebody else removed or damaged it."""
    try:
        return decision_of(pod)
    except InputError:
        return None


def _terms(decision: Decision) -> tuple[object, StartOrder, StatedLabels]:
    return decision.containers, decision.start, decision.labels


def _terms_of(booking: Booking) -> tuple[object, StartOrder, StatedLabels]:
    return decided(booking), start_of(booking), booking.locality.stated


def _wanted(found: Decision | None, change: ResizeChange) -> Decision:
    containers, start = decided(change.new), start_of(change.new)
    if found is None:
        time = rfc3339(datetime.now(UTC))
        found = Decision(containers=containers, score=0.0, policy="", time=time)
    resized = tuple(dict.fromkeys((*found.resized, change.container)))
    labels = change.new.locality.stated  # somebody else may have changed them on the pod
    return msgspec.structs.replace(found, containers=containers, resized=resized, start=start, labels=labels)


def _patch(pod: Pod, info: Decision) -> dict[str, object]:
    meta = pod.metadata
    preconditions = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
    return {"metadata": {**preconditions, "annotations": annotations_of(info)}}


def _path(request: Resize) -> str:
    for field, name in (("namespace", request.namespace), ("pod", request.pod)):
        if not _NAME.match(name):
            raise InputError(field, name, "cannot be a name in Kubernetes", "use lower case, digits, - and .")
    return f"/api/v1/namespaces/{request.namespace}/pods/{request.pod}"
