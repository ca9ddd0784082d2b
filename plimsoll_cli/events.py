"""`plimsoll events`: the events of the stream, as lines for people or as they were published.

What always holds: each stored event that matches is printed once, in the stream's order, also over a restart of NATS.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DeliverPolicy
from nats.js.errors import APIError

from plimsoll.asyncapi import KINDS
from plimsoll.bus.access import BusAccess
from plimsoll.bus.client import BusClient
from plimsoll.bus.consumers import BATCH, reading
from plimsoll.bus.stream import LOST_PINGS, NATS_SCHEMES, PING_S
from plimsoll.bus.subjects import STREAM, node_token
from plimsoll.envelope import decode_event
from plimsoll.ids import NodeName
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import cause_of
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.settings import check_urls, shown_url
from plimsoll.quantity import format_bytes
from plimsoll_cli.columns import shortened
from plimsoll_cli.output import named_if_slow, printable

CONNECT_S: Final = 5.0
CLOSE_S: Final = 1.0
IDLE_S: Final = 5.0
"""Seconds that a request for events waits. After a request that got no event, the command checks that its consumer
still exists."""

WIDE: Final = 120
"""Columns from which on a line has room for a date."""

_WHATS: Final = tuple(kind.what for kind in KINDS)
_ODD_DATA: Final = (AttributeError, KeyError, TypeError, ValueError)
"""Errors while reading data that is not an event's: every publisher can put anything there."""
_VARIABLE: Final = "--nats-url or PLIMSOLL_NATS_URL"


class NoEventsError(PlimsollError):
    """NATS does not answer, or has no stream of events."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The events to print; an empty text wants any.

    Attributes:
        type: `task.started`, or a group: `task`.
        node: its name.
        pod: its uid, or, for placement events, its name.
    """

    type: str = ""
    node: str = ""
    pod: str = ""

    def subjects(self) -> list[str]:
        """The subjects of such events; each event is on one of them at most.

        Raises:
            InputError: there is no such type.
        """
        kinds = [kind for kind in KINDS if self.type in {"", kind.what, kind.what.partition(".")[0]}]
        if not kinds:
            raise InputError("--type", self.type, "is no type of event", f"give one of {', '.join(_WHATS)}")
        token = node_token(NodeName(self.node)) if self.node else "*"
        return [kind.subject.replace("{node}", token) for kind in kinds]

    def matches(self, data: dict[str, Any]) -> bool:
        """Whether an event with such data, from one of the subjects, is wanted."""
        task = data.get("task") or {}
        pods = {data.get("pod"), data.get("name"), task.get("pod"), *data.get("pods", ())}
        is_of_pod = not self.pod or self.pod in pods
        is_of_node = not self.node or self.node in {data.get("node"), data.get("state", {}).get("node")}
        return is_of_pod and is_of_node


async def events(url: str, wanted: EventFilter, access: BusAccess, *, follow: bool) -> AsyncGenerator[bytes]:
    """The wanted events as they were published: those of the stream, or, to follow, those from now on.

    Args:
        url: the NATS server's URL; several with commas.
        wanted: the events.
        access: the files to come in by.
        follow: wait for new events for ever.

    Raises:
        NoEventsError: NATS does not answer, or has no stream; while following only at the start.
        InputError: the URL is malformed, a file cannot be used, or there is no such type.
    """
    subjects = wanted.subjects()
    client = await connected(url, access, "plimsoll-events", [])
    try:
        jetstream = client.jetstream()
        try:
            newest = (await jetstream.stream_info(STREAM)).state.last_seq
        except (nats.errors.Error, TimeoutError) as error:
            cause = cause_of(error, _VARIABLE)
            raise NoEventsError(f"NATS at {shown_url(url)} has no stream {STREAM}: {cause}") from error
        async for message in _messages(jetstream, subjects, newest, follow=follow):
            with suppress(InputError, *_ODD_DATA):  # a stranger's message
                if wanted.matches(json.loads(bytes(decode_event(message.data).data))):
                    yield message.data
    finally:
        with suppress(nats.errors.Error, OSError, TimeoutError):
            await client.close()


def line(message: bytes, width: int | None = None) -> str:
    """An event as one line for people: time, type, node or pod, and the rest in a few words.

    Data that is no event's is named so, and hides no other event.

    Args:
        message: the message as it was published.
        width: cut the line to this many columns; below `WIDE`, the time has no date. None cuts nothing.
    """
    event = decode_event(message)
    what = event.type.removeprefix("dev.plimsoll.").removesuffix(".v1")
    try:
        about, words = _place(json.loads(bytes(event.data)))
    except _ODD_DATA:
        about, words = "?", ["its data is not that of such an event; `-o json` shows it"]
    moment = f"{event.time:<27}" if width is None or width >= WIDE else event.time[11:19]
    text = f"{moment}  {what:<17}  {about:<24}  {', '.join(word for word in words if word)}".rstrip()
    return printable(text) if width is None else shortened(printable(text), width)


def _place(data: dict[str, Any]) -> tuple[str, list[str]]:
    """The node or pod of an event, and more about it in a few words."""
    if "namespace" in data:
        about, text = f"{data['namespace']}/{data['name']}", data.get("node") or ""
    else:
        about = data.get("node") or data["state"]["node"]
        text = _task(data["task"]) if data.get("task") else _gpu(data)
    return f"{about}", [f"{text}", f"{data.get('reason') or data.get('call') or ''}"]


def _gpu(data: dict[str, Any]) -> str:
    """The GPU of an event without a task, what is new about it, and the container."""
    words = [data["gpu"]] if data.get("gpu") else []
    if "before" in data:
        causes = "; ".join(one["text"] for one in data["conditions"])
        words.append(f"{data['before']} -> {data['health']}" + (f" ({causes})" if causes else ""))
    if "short" in data:
        words.append(
            f"{'short' if data['short'] else 'short no more'}: {format_bytes(data['free_bytes'])} free"
        )
    return f"{' '.join(words)}{_owner(data)}"


def _task(task: dict[str, Any]) -> str:
    used = format_bytes(task["used_bytes"])
    return f"{used} pid {task['pid']} {task['gpu']}{_owner(task)}"


def _owner(data: dict[str, Any]) -> str:
    pod, container = data.get("pod"), data.get("container")
    return f" pod {pod} {container or ''}".rstrip() if pod else ""


async def _messages(
    jetstream: JetStreamContext, subjects: list[str], newest: int, *, follow: bool
) -> AsyncIterator[Msg]:
    """Messages on these subjects: up to `newest`, or, to follow, after it."""
    after, pauses = newest if follow else 0, Pauses()
    while follow or after < newest:
        try:
            config = reading(subjects, DeliverPolicy.BY_START_SEQUENCE, after + 1)
            info = await jetstream.add_consumer(STREAM, config)
            if not follow and not info.num_pending:
                return
            subscription = await jetstream.pull_subscribe_bind(consumer=info.name, stream=STREAM)
            while follow or after < newest:
                try:
                    messages = await subscription.fetch(BATCH, timeout=IDLE_S)
                except TimeoutError:
                    await jetstream.consumer_info(STREAM, info.name)  # raises where the server has lost it
                    continue
                pauses.reset()
                for message in messages:
                    seq = message.metadata.sequence.stream
                    if not follow and seq > newest:
                        return
                    after = seq
                    yield message
                if not follow and messages and messages[-1].metadata.num_pending == 0:
                    return
        except (nats.errors.Error, APIError, OSError, TimeoutError) as error:
            if not follow:
                raise NoEventsError(f"the stream cannot be read ({error})") from error
            await asyncio.sleep(pauses.next_s())


async def connected(url: str, access: BusAccess, name: str, failures: list[Exception]) -> Client:
    """A client that reconnects for ever, once it has connected; close it.

    Args:
        url: the NATS server's URL; several with commas.
        access: the files to come in by.
        name: the client's name in the server's monitoring.
        failures: gets the errors that NATS reports beside answers, such as a missing right.

    Raises:
        NoEventsError: NATS does not answer, or refuses the login.
        InputError: the URL is malformed, or a file cannot be used.
    """

    async def note(error: Exception) -> None:
        """Keep the error: the client raises a vaguer one in the end."""
        failures.append(error)

    check_urls(_VARIABLE, url, NATS_SCHEMES)
    access.check()
    client = BusClient()
    servers = url.split(",")
    try:
        # nats-py has no limit for a server that greets, or echoes the greeting, and answers nothing then.
        with named_if_slow(f"NATS at {shown_url(url)}"):
            async with asyncio.timeout(2 * CONNECT_S * len(servers)):
                await client.connect(
                    servers,
                    error_cb=note,
                    name=name,
                    connect_timeout=int(CONNECT_S),
                    max_reconnect_attempts=1,
                    ping_interval=PING_S,
                    max_outstanding_pings=LOST_PINGS,
                    **access.options(),
                )
    except (nats.errors.Error, OSError, TimeoutError, *_ODD_DATA) as error:  # _ODD_DATA: it is no NATS
        with suppress(nats.errors.Error, OSError, TimeoutError, *_ODD_DATA):
            async with asyncio.timeout(CLOSE_S):
                await client.close()
        cause = cause_of(failures[0] if failures else error, _VARIABLE)
        raise NoEventsError(f"NATS at {shown_url(url)} does not answer: {cause}") from error
    client.options["max_reconnect_attempts"] = -1  # from now on the command outlives the server
    return client
