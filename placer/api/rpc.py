"""Answers requests over NATS: resizes, one after another.

What always holds: each request that arrives is answered once, in bounded time, also an unreadable one. Two resizes
never overlap, so each is checked against the room that the other left. A lost request (NATS away, placer restarted)
gets no answer, and the same request again is harmless.
"""

import asyncio
from typing import Final, NoReturn, Protocol

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from placer.core.resize.change import NotNowError
from plimsoll.bus.messages import next_message
from plimsoll.bus.subjects import RESIZE
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.placer_api.rpc import Failed, Refused, Resize, ResizeAnswer, Resizing

ANSWER_S: Final = 10.0
"""Seconds that one resize may take. While the API server is away, the user gets an error instead of a long wait."""
WAITING_MAX: Final = 1000
"""Requests that may wait. The client library drops more, and their senders get no answer."""

log = get_logger()


class FrontEnd(Protocol):
    """A front end that has pods to resize."""

    def has(self, namespace: str, pod: str) -> bool:
        """Whether a pod of that name may be this front end's. If there is none after all, `resize` refuses."""

    async def resize(self, request: Resize) -> Resizing:
        """Carry a resize out, or raise `InputError` or `NotNowError`."""


class RpcServer:
    """Serves `plimsoll-rpc.v1.placer.>`.

    Args:
        client: the NATS client.
        front_ends: the number of front ends that will be added. Until all are, no pod is reported as missing.
    """

    def __init__(self, client: Client, front_ends: int = 0) -> None:
        self._client = client
        self._expected = front_ends
        self._front_ends: list[FrontEnd] = []

    def add(self, front_end: FrontEnd) -> None:
        """Ask this front end too, after those added before."""
        self._front_ends.append(front_end)

    async def run(self) -> NoReturn:
        """Answer until cancelled."""
        requests = await self._client.subscribe(RESIZE, pending_msgs_limit=WAITING_MAX)
        while True:
            message = await next_message(requests, "requests cannot be read, retrying")
            answer = await self._answer(message.data)
            log.info("resize answered", request=message.data[:300].decode("utf-8", "replace"), answer=answer)
            await self._reply(message, answer)

    async def _answer(self, data: bytes) -> ResizeAnswer:
        try:
            request = msgspec.json.decode(data, type=Resize)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return Refused(
                message=f"the request is damaged ({error}); send plimsoll.placer_api.rpc.Resize as JSON"
            )
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._resize(request)
        except InputError as error:
            return Refused(message=str(error))
        except NotNowError as error:
            return Failed(message=str(error))
        except TimeoutError:
            return Failed(message=f"it took longer than {ANSWER_S} s; see the placer's log, and ask again")

    async def _resize(self, request: Resize) -> Resizing:
        for front_end in self._front_ends:
            if front_end.has(request.namespace, request.pod):
                return await front_end.resize(request)
        if len(self._front_ends) < self._expected:
            raise NotNowError("the placer has just started and does not know all pods yet; ask again")
        name = f"{request.namespace}/{request.pod}"
        raise InputError("pod", name, "does not exist", "name a running pod, and its namespace with -n")

    async def _reply(self, message: Msg, answer: ResizeAnswer) -> None:
        try:
            await message.respond(msgspec.json.encode(answer))
        except nats.errors.Error as error:
            log.warning("an answer was not sent", error=f"{type(error).__name__}: {error}")
