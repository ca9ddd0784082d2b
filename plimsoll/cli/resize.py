"""`plimsoll resize --nats-url`: asks the placer of local nodes over NATS, and waits until the node's broker confirms.

Pods of Kubernetes are resized through the API server (`plimsoll.cli.resize_pod`).
What always holds: the command succeeds only after it has read `limit.resized` of every GPU of the container from the
stream. In any other case its message says how far the change came, and the remedy.
"""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import Header
from nats.js.errors import NotFoundError

from plimsoll.bus.access import BusAccess
from plimsoll.bus.client import BusClient
from plimsoll.bus.stream import NATS_SCHEMES
from plimsoll.bus.subjects import RESIZE, STREAM
from plimsoll.cli.output import named_if_slow
from plimsoll.events import Limit
from plimsoll.ids import GpuUuid
from plimsoll.part.causes import cause_of
from plimsoll.part.errors import PlimsollError
from plimsoll.part.settings import check_urls, shown_url
from plimsoll.placer_api import confirmations
from plimsoll.placer_api.rpc import Failed, Refused, Resize, ResizeAnswer, Resizing, change_shown, terms_shown
from plimsoll.quantity import format_bytes

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
        InputError: the URL is malformed.
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
                await confirmations.until_confirmed(jetstream, request, asked, newest, seen)
                return Confirmed(request, asked, tuple(seen[line.gpu] for line in asked.after))
        except TimeoutError as error:
            raise NotConfirmedError(_unconfirmed(request, asked, seen, timeout_s)) from error
    finally:
        with suppress(nats.errors.Error, OSError, TimeoutError):
            await client.close()


async def _connected(url: str) -> Client:
    failures: list[Exception] = []

    async def note(error: Exception) -> None:
        """Keep the error: the client raises a vaguer one in the end."""
        failures.append(error)

    check_urls("--nats-url or PLIMSOLL_NATS_URL", url, NATS_SCHEMES)
    access = BusAccess.of(os.environ)
    access.check()
    client = BusClient()
    try:
        with named_if_slow(f"NATS at {shown_url(url)}"):
            async with asyncio.timeout(CONNECT_S):
                await client.connect(
                    url.split(","),
                    allow_reconnect=False,
                    connect_timeout=int(
                        CONNECT_S
                    ),  # nats-py's own is shorter, and a busy server answers later
                    error_cb=note,
                    name="plimsoll-resize",
                    **access.options(),
                )
                return client
    except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
        with suppress(nats.errors.Error, OSError, TimeoutError):
            await client.close()
        cause = cause_of(failures[0] if failures else error, "--nats-url or PLIMSOLL_NATS_URL")
        raise NotConfirmedError(f"NATS at {shown_url(url)} does not answer: {cause}") from error


async def _newest(jetstream: JetStreamContext) -> int:
    try:
        return await confirmations.newest(jetstream)
    except (nats.errors.Error, NotFoundError) as error:
        remedy = "is a placer or monitor running? They make it"
        raise NotConfirmedError(f"stream {STREAM} cannot be read ({error}); {remedy}") from error


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
        answer: ResizeAnswer = msgspec.json.decode(message.data, type=ResizeAnswer)
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


def _unconfirmed(
    request: Resize, asked: Resizing | None, seen: dict[GpuUuid, Limit], timeout_s: float
) -> str:
    if asked is None:
        unknown = "it is unknown whether it acted; see its log, and ask again"
        return f"the placer gave no answer in {timeout_s:g} s, {unknown}"
    others = [
        line.gpu for line in asked.after if line.gpu in seen and not confirmations.holds(request, line, seen)
    ]
    if others:
        terms = "; ".join(f"{gpu} has {terms_shown(request, seen[gpu])}" for gpu in others)
        return f"another resize came after this one: {terms}; look at the pod, and ask again if need be"
    return (
        f"the placer accepted it, but the broker on {asked.node} did not confirm in {timeout_s:g} s; the values "
        "before stay in force until then: check the broker and the monitor of that node"
    )
