"""Carries out the tickets by which people ask for a resize of a pod, one after another, and answers on the pod.

What always holds: a ticket is carried out only while it stands on the pod, because the write has the version of the
pod as its precondition. Each ticket gets one final answer, also after another placer has taken over: an unanswered
ticket is carried out again, which is harmless.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

import msgspec
import nats.errors
from nats.js import JetStreamContext

from placer.core.resize.change import NotNowError
from placer.resize.resize import WithdrawnError
from plimsoll.events import Limit
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.kube.transport import ApiError, NotFoundError, PatchKind, TransientError, Transport
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.placer_api import confirmations
from plimsoll.placer_api.resize_tickets import ANSWER, Answered, answer_on, digest_of, resize_in, ticket_on
from plimsoll.placer_api.rpc import Failed, Refused, Resize, ResizeAnswer, Resizing

CARRY_OUT_S: Final = 10.0
"""Seconds that one resize may take. While the API server is away, the user gets an error instead of a long wait."""

CONFIRM_S: Final = 600.0
"""Seconds that the node's broker may take to confirm: longer than a node takes to restart. A ticket without this end
would stay open for ever on a node that is gone."""

WRITES: Final = 5
PAUSE_S: Final = 0.5
"""Attempts to write an answer while the API server is away, and the seconds between two of them."""

log = get_logger()


class Confirmations(Protocol):
    """Knows what brokers put in force."""

    async def newest(self) -> int:
        """The number of the newest event, for `until`; raises `nats.errors.Error` where events cannot be read."""

    async def until(self, request: Resize, asked: Resizing, after: int) -> tuple[Limit, ...]:
        """Wait for the confirmation of each GPU, in the order of `asked.after`."""


@dataclass(frozen=True, slots=True)
class StreamConfirmations:
    """The confirmations in the stream of events."""

    jetstream: JetStreamContext

    async def newest(self) -> int:
        """See `Confirmations`."""
        return await confirmations.newest(self.jetstream)

    async def until(self, request: Resize, asked: Resizing, after: int) -> tuple[Limit, ...]:
        """See `Confirmations`. While NATS is away, this tries again."""
        seen: dict[GpuUuid, Limit] = {}
        while True:
            heed_cancellation()
            try:
                await confirmations.until_confirmed(self.jetstream, request, asked, after, seen)
            except (nats.errors.Error, TimeoutError, OSError) as error:
                log.info("confirmations cannot be read, retrying", error=str(error) or type(error).__name__)
                await asyncio.sleep(PAUSE_S)  # NATS is away
            else:
                return tuple(seen[line.gpu] for line in asked.after)


@dataclass(slots=True)
class Tickets:
    """The tickets on the pods of one cluster; `run` it as a task, and `put` each pod.

    Attributes:
        transport: for answers.
        resize: carries a request out while this text is the ticket on the pod, see `KubeResizer.resize`.
        leads: set once this placer is the one that places.
        confirmations: set before `run` where there is a bus.
    """

    transport: Transport
    resize: Callable[[Resize, str], Awaitable[Resizing]]
    leads: asyncio.Event
    confirmations: Confirmations | None = None
    _open: dict[PodUid, Pod] = field(default_factory=dict)
    _begun: dict[PodUid, str] = field(default_factory=dict)  # the watch may not have shown the answer yet
    _confirming: dict[PodUid, asyncio.Task[None]] = field(default_factory=dict)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, pod: Pod) -> None:
        """Take in a pod as the watch shows it; only pods with a node are resized."""
        if pod.status.phase in TERMINAL_PHASES:
            self.remove(pod)
            return
        if not pod.spec.nodeName:
            return
        uid, text = PodUid(pod.metadata.uid), ticket_on(pod)
        self._open.pop(uid, None)
        if text is None:
            return
        answered = answer_on(pod, text)
        if (answered is None or not answered.is_final) and self._begun.get(uid) != text:
            self._open[uid] = pod
            self._work.set()

    def remove(self, pod: Pod) -> None:
        """Forget a pod that ended or is gone."""
        uid = PodUid(pod.metadata.uid)
        self._open.pop(uid, None)
        self._begun.pop(uid, None)
        self._end_confirming(uid)

    async def run(self) -> NoReturn:
        """Carry tickets out until cancelled."""
        await self.leads.wait()
        async with asyncio.TaskGroup() as group:
            while True:
                heed_cancellation()
                await self._work.wait()
                self._work.clear()
                while self._open:
                    uid = next(iter(self._open))
                    await self._carry_out(self._open.pop(uid), group)
        raise AssertionError("an endless loop ended")

    async def _carry_out(self, pod: Pod, group: asyncio.TaskGroup) -> None:
        uid, text = PodUid(pod.metadata.uid), ticket_on(pod) or ""
        self._end_confirming(uid)
        self._begun[uid] = text
        try:
            request = resize_in(pod, text)
            async with asyncio.timeout(CARRY_OUT_S):
                after = await self._newest()
                asked = await self.resize(request, text)
        except WithdrawnError:
            self._begun.pop(uid, None)  # the watch shows the pod without this ticket, or with another
        except InputError as error:
            await self._answer(pod, text, Refused(message=str(error)))
        except NotNowError as error:
            await self._answer(pod, text, Failed(message=str(error)))
        except TimeoutError:
            late = f"it took longer than {CARRY_OUT_S:g} s; see the placer's log, and ask again"
            await self._answer(pod, text, Failed(message=late))
        else:
            work = self._confirm(pod, request, asked, after)
            task = group.create_task(work, name=f"kube: confirm the resize of {uid}")
            self._confirming[uid] = task
            task.add_done_callback(lambda done: self._confirmed(uid, done))

    async def _newest(self) -> int:
        if self.confirmations is None:
            return 0
        try:
            return await self.confirmations.newest()
        except (nats.errors.Error, TimeoutError) as error:
            cause = str(error) or type(error).__name__
            raise NotNowError(
                f"no node could confirm it, as the placer cannot read events from NATS ({cause}); nothing was "
                "changed; ask again once NATS is back"
            ) from error

    async def _confirm(self, pod: Pod, request: Resize, asked: Resizing, after: int) -> None:
        text = ticket_on(pod) or ""
        await self._answer(pod, text, asked)
        if self.confirmations is None:
            return
        try:
            async with asyncio.timeout(CONFIRM_S):
                confirmed = await self.confirmations.until(request, asked, after)
        except TimeoutError:
            why = (
                f"the change is written on the pod, but the broker on {asked.node} did not confirm it in "
                f"{CONFIRM_S:g} s; check that node's broker and monitor, and ask again"
            )
            await self._answer(pod, text, Failed(message=why))
        else:
            await self._answer(pod, text, asked, confirmed)

    def _confirmed(self, uid: PodUid, task: asyncio.Task[None]) -> None:
        if self._confirming.get(uid) is task:
            del self._confirming[uid]

    def _end_confirming(self, uid: PodUid) -> None:
        """A later ticket replaces an earlier one, which must not be answered after it."""
        task = self._confirming.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _answer(
        self, pod: Pod, text: str, answer: ResizeAnswer, confirmed: tuple[Limit, ...] | None = None
    ) -> None:
        """Write an answer on the pod. Where that fails, the ticket stays open, and the log has the answer."""
        written = msgspec.json.encode(
            Answered(ticket=digest_of(text), answer=answer, confirmed=confirmed)
        ).decode()
        log.info("resize answered", pod=pod.full_name, answer=written)
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": {ANSWER: written}}}
        for attempt in range(WRITES):
            try:
                await self.transport.patch(pod.path, body, PatchKind.MERGE)
            except NotFoundError:
                return
            except TransientError:
                if attempt + 1 < WRITES:
                    await asyncio.sleep(PAUSE_S)  # the API server is away
            except ApiError as error:
                log.warning("an answer was not written", pod=pod.full_name, error=str(error))
                return
            else:
                return
        log.warning("an answer was not written", pod=pod.full_name, error="no API server")
