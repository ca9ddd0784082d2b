"""`plimsoll resize`: sends the request to the placer over NATS, and waits until the node's broker confirms it.

What always holds: the command succeeds only after it has read `limit.resized` of every GPU of the container from the
stream. In any other case its message says how far the change came, and the remedy.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec
import nats
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy, Header
from nats.js.errors import NotFoundError

from plimsoll.broker.wire import RUN_NAMESPACE, Line
from plimsoll.events import Limit, decode_event
from plimsoll.ids import GpuUuid
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.settings import shown_url
from plimsoll.placer_api.rpc import Answer, Failed, Refused, Resize, Resizing, change_shown, terms_shown
from plimsoll.quantity import format_bytes
from plimsoll.subjects import RESIZE, STREAM, limit_subject

CONNECT_S: Final = 5.0

ASK_AGAIN_S: Final = 3.0
"""Seconds without an answer after which the placer is asked again: longer than a follower takes to lead, and shorter
than people wait."""

NO_RESPONDERS: Final = "503"
"""The status by which NATS answers a request that nobody reads."""


class NotResizedError(PlimsollError):
    """The placer refused the request: nothing was changed."""


class NotConfirmedError(PlimsollError):
    """The change is not known to hold; the message says how far it came."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A change that holds now, as its broker announced it.

    Attributes:
        asked: the placer's answer.
        limits: a confirmation for each GPU, in the order of `asked.before`.
    """

    request: Resize
    asked: Resizing
    limits: tuple[Limit, ...]

    def lines(self) -> Iterable[str]:
        """A text line for each GPU, for people."""
        for before, limit in zip(self.asked.before, self.limits, strict=True):
            text = f"{limit.gpu} on {self.asked.node}: {change_shown(self.request, before, limit)}"
            if self.request.gpu_memory is not None:
                text += ", " + (limit.reason or f"holds {format_bytes(limit.used_bytes)} now")
            yield text


async def resize(request: Resize, url: str, timeout_s: float) -> Confirmed:
    """Request a change, and return once it holds. After cancelling, the change may still happen.

    Args:
        request: the change.
        url: the NATS server's URL; several with commas.
        timeout_s: the longest time for the placer's answer and the broker's confirmation together.

    Raises:
        NotResizedError: the placer refused; nothing was changed.
        NotConfirmedError: NATS or the placer did not answer, or no confirmation came in time.
    """
    client = await _connected(url)
    try:
        jetstream = client.jetstream()
        newest = await _newest(jetstream)
        asked: Resizing | None = None
        seen: dict[GpuUuid, Limit] = {}
        try:
            async with asyncio.timeout(timeout_s):
                asked = await _ask(client, request)
                await _until_confirmed(jetstream, request, asked, newest, seen)
                return Confirmed(request, asked, tuple(seen[line.gpu] for line in asked.after))
        except TimeoutError as error:
            raise NotConfirmedError(_unconfirmed(request, asked, seen, timeout_s)) from error
    finally:
        with suppress(nats.errors.Error, OSError, TimeoutError):
            await client.close()


async def _connected(url: str) -> Client:
    async def silent(_: Exception) -> None:
        """Ignore the error: the client raises it as well."""

    try:
        async with asyncio.timeout(CONNECT_S):
            return await nats.connect(
                url.split(","), allow_reconnect=False, error_cb=silent, name="plimsoll-resize"
            )
    except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
        remedy = (
            "give its address by --nats-url or PLIMSOLL_NATS_URL, "
            f"or, for a command of `plimsoll run`, -n {RUN_NAMESPACE}"
        )
        raise NotConfirmedError(f"NATS at {shown_url(url)} does not answer ({error!r}); {remedy}") from error


async def _newest(jetstream: JetStreamContext) -> int:
    """The number of the stream's newest event: only later events can confirm our request."""
    try:
        return int((await jetstream.stream_info(STREAM)).state.last_seq)
    except (nats.errors.Error, NotFoundError) as error:
        remedy = "is a placer or monitor running? They make it"
        raise NotConfirmedError(f"stream {STREAM} cannot be read ({error!r}); {remedy}") from error


async def _ask(client: Client, request: Resize) -> Resizing:
    """Ask until a placer answers. A leader that stands still loses the request, and the next one is asked again.

    Repeating a request is harmless, and the first answer to any of the requests counts.
    """
    inbox = client.new_inbox()
    is_delivered = False
    try:
        answers = await client.subscribe(inbox)
        while True:
            await client.publish(RESIZE, msgspec.json.encode(request), reply=inbox)
            try:
                message = await answers.next_msg(timeout=ASK_AGAIN_S)
            except nats.errors.TimeoutError:
                is_delivered = True
                continue
            if (message.headers or {}).get(Header.STATUS) != NO_RESPONDERS:
                break
            if not is_delivered:
                raise NotConfirmedError("no placer answers; nothing was changed; start one and ask again")
            await asyncio.sleep(ASK_AGAIN_S)  # the leader has ended since, and the next one is on its way
    except nats.errors.Error as error:
        raise NotConfirmedError(
            f"NATS was lost ({error!r}); it is unknown whether the placer acted; ask again"
        ) from error
    try:
        answer: Answer = msgspec.json.decode(message.data, type=Answer)
    except msgspec.MsgspecError as error:
        raise NotConfirmedError(
            f"the placer's answer cannot be read ({error}); are both of one version?"
        ) from error
    match answer:
        case Resizing():
            return answer
        case Refused(message=words):
            raise NotResizedError(words)
        case Failed(message=words):
            raise NotConfirmedError(words)


async def _until_confirmed(
    jetstream: JetStreamContext, request: Resize, asked: Resizing, newest: int, seen: dict[GpuUuid, Limit]
) -> None:
    """Wait for the confirmations; `seen` has the latest one of each GPU meanwhile.

    If the same change was requested before, the broker announces nothing new. The earlier confirmation then counts,
    if no later one contradicts it.
    """
    changed = asked.before != asked.after
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE if changed else DeliverPolicy.ALL,
        opt_start_seq=newest + 1 if changed else None,
    )
    subject = limit_subject("resized", asked.node)
    events = await jetstream.subscribe(subject, ordered_consumer=True, config=config)
    while True:
        message = await events.next_msg(timeout=None)
        limit = _limit_in(message.data)
        if limit is not None and (limit.pod, limit.container) == (asked.pod, asked.container) and limit.gpu:
            seen[limit.gpu] = limit
        is_latest = changed or message.metadata.num_pending == 0
        if is_latest and all(_holds(request, line, seen) for line in asked.after):
            return


def _holds(request: Resize, line: Line, seen: dict[GpuUuid, Limit]) -> bool:
    """Whether the last confirmation has the requested values; other values may have changed meanwhile."""
    return line.gpu in seen and request.asked_of(seen[line.gpu]) == request.asked_of(line)


def _limit_in(message: bytes) -> Limit | None:
    """The limit event in a message, or None for a damaged message, which confirms nothing."""
    try:
        return msgspec.json.decode(decode_event(message).data, type=Limit)
    except (InputError, msgspec.MsgspecError):
        return None


def _unconfirmed(
    request: Resize, asked: Resizing | None, seen: dict[GpuUuid, Limit], timeout_s: float
) -> str:
    if asked is None:
        unknown = "it is unknown whether it acted; see its log, and ask again"
        return f"the placer gave no answer in {timeout_s:g} s, {unknown}"
    others = [line.gpu for line in asked.after if line.gpu in seen and not _holds(request, line, seen)]
    if others:
        terms = "; ".join(f"{gpu} has {terms_shown(request, seen[gpu])}" for gpu in others)
        return f"another resize came after this one: {terms}; look at the pod, and ask again if need be"
    return (
        f"the placer accepted it, but the broker on {asked.node} did not confirm in {timeout_s:g} s; what was before "
        "holds there until it does: look after the broker and the monitor of that node"
    )
