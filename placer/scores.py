"""The sorted list in Redis (or Valkey): nodes and GPUs by score, and each node's last report.

The list is published for people and other programs. No decision reads it, so its loss costs a refill and nothing
else. What always holds: a report and its scores change together (one Lua script), and only for a newer report by
(`epoch`, `seq`). Scores alone change only for the report that is in the list. A list that was lost, wholly or by
going back in time, is never read as if it were complete: the key `generation` is written last when the list is
filled, and its absence is an error of its own.
"""

import asyncio
import contextlib
import enum
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from placer.core.ledger import Ledger
from placer.core.room import Room, room_on
from placer.core.score import Formula, node_scores
from placer.core.view import node_view
from placer.redis_client import open_redis
from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.part.errors import PlimsollError
from plimsoll.placer_api import redis_keys as keys

TIMEOUT_S: Final = 5.0
"""How long one exchange may take; a healthy server needs about a millisecond."""

CHUNK: Final = 200
"""Reports in one exchange of a fill: some 100 KiB, so that other clients wait for a short time only."""

RoomsOf = Callable[[NodeState], Iterable[Room]]
"""Gives the rooms of all GPUs in a report, by which the report is scored."""

_KEYS: Final = (keys.NODES, keys.GPUS, keys.REPORTS, keys.ORDER, keys.GENERATION)
_SCRIPT: Final = (Path(__file__).parent / "scores.lua").read_text()


class ScoresAwayError(PlimsollError):
    """Redis did not answer, or not as expected: try again after a pause; nothing is lost."""


class ScoresLostError(ScoresAwayError):
    """Redis answers and has lost the list: fill the list again before it is read."""


class ReportResult(enum.Enum):
    """Whether a report, or its scores, changed the list."""

    APPLIED = 1
    STALE = 0


class _Mode(enum.Enum):
    """The argument of the script, see `scores.lua`."""

    REPORT = "report"
    FILL = "fill"
    RESCORE = "rescore"


def measured_rooms(state: NodeState) -> Iterable[Room]:
    """The rooms of the GPUs in a report if nothing is promised there."""
    return [room_on(state.node, gpu, Ledger()) for gpu in node_view(state).gpus]


class ScoreList:
    """The list, over one pool of connections. Every method may be called from several tasks at once."""

    def __init__(
        self,
        url: str,
        *,
        formula: Formula = Formula.PROSE,
        rooms_of: RoomsOf = measured_rooms,
        timeout_s: float = TIMEOUT_S,
        connections: int = 8,
    ) -> None:
        self._formula = formula
        self._rooms_of = rooms_of
        self._timeout_s = timeout_s
        self._client = open_redis(url, timeout_s=timeout_s, connections=connections)
        self._sha = ""

    async def close(self) -> None:
        """Close the connections; call no method afterwards."""
        await self._client.aclose()

    async def apply(self, states: Sequence[NodeState]) -> list[ReportResult]:
        """Write reports, each atomically and only if newer than the list's.

        Raises:
            ScoresLostError: the list is lost; nothing was applied. Call `fill`.
            ScoresAwayError: no answer; some reports may have been applied. Applying them again is harmless.
        """
        return await self._update(states, _Mode.REPORT)

    async def rescore(self, states: Sequence[NodeState]) -> list[ReportResult]:
        """Write the scores of reports anew, each atomically and only if the list holds just that report.

        Raises:
            ScoresLostError: the list is lost; nothing was written. Call `fill`.
            ScoresAwayError: no answer; some scores may have been written. Writing them again is harmless.
        """
        return await self._update(states, _Mode.RESCORE)

    async def fill(self, states: Iterable[NodeState]) -> None:
        """Write every node's last report and mark the list complete; newer reports in the list stay.

        Raises:
            ScoresAwayError: no answer. Fill again.
        """
        all_states = tuple(states)
        for start in range(0, len(all_states), CHUNK):
            await self._update(all_states[start : start + CHUNK], _Mode.FILL)
        async with self._asking("write the list's generation"):
            await self._client.set(keys.GENERATION, secrets.token_hex(8), nx=True)

    async def orders(self) -> dict[NodeName, tuple[int, int]] | None:
        """Node → (epoch, seq) of the report that the list holds; None if the list was lost.

        Raises:
            ScoresAwayError: no answer.
        """
        async with self._asking("tell the order of its reports"), self._client.pipeline() as pipe:
            pipe.exists(keys.GENERATION)
            pipe.hgetall(keys.ORDER)
            complete, orders = await pipe.execute()
        return {NodeName(node): _order(text) for node, text in orders.items()} if complete else None

    async def reports(self, nodes: Sequence[NodeName]) -> dict[NodeName, NodeState]:
        """The last report of each of these nodes; nodes without one are left out.

        Raises:
            ScoresAwayError: no answer, or a damaged report.
        """
        if not nodes:
            return {}
        async with self._asking("give reports"):
            texts = await self._client.hmget(keys.REPORTS, list(nodes))
        found = zip(nodes, texts, strict=True)
        try:
            return {
                node: msgspec.json.decode(text, type=NodeState) for node, text in found if text is not None
            }
        except msgspec.MsgspecError as error:
            raise ScoresAwayError(f"a report in Redis is damaged ({error}); flush {keys.REPORTS}") from error

    async def scores(self) -> tuple[dict[NodeName, float], dict[tuple[NodeName, GpuUuid], float]]:
        """All scores, of nodes and of GPUs, for people. No decision reads them.

        Raises:
            ScoresAwayError: no answer.
        """
        async with self._asking("give its scores"), self._client.pipeline() as pipe:
            pipe.zrevrange(keys.NODES, 0, -1, withscores=True)
            pipe.zrevrange(keys.GPUS, 0, -1, withscores=True)
            nodes, gpus = await pipe.execute()
        by_gpu = {(NodeName(m.partition("/")[0]), GpuUuid(m.partition("/")[2])): float(s) for m, s in gpus}
        return {NodeName(name): float(score) for name, score in nodes}, by_gpu

    async def forget(self, node: NodeName) -> None:
        """Take a node out of the list; a later report brings the node back.

        Raises:
            ScoresAwayError: no answer; forget again.
        """
        known = await self.reports([node])
        members = [f"{node}/{gpu.uuid}" for state in known.values() for gpu in state.gpus]
        async with self._asking(f"forget {node}"), self._client.pipeline() as pipe:
            pipe.zrem(keys.NODES, node)
            pipe.hdel(keys.REPORTS, node)
            pipe.hdel(keys.ORDER, node)
            if members:
                pipe.zrem(keys.GPUS, *members)
            await pipe.execute()

    async def _update(self, states: Sequence[NodeState], mode: _Mode) -> list[ReportResult]:
        if not states:
            return []
        calls = [self._arguments(state, mode) for state in states]
        async with self._asking("take in reports"):
            if not self._sha:
                self._sha = await self._client.script_load(_SCRIPT)
            try:
                results = await self._evaluate(calls)
            except NoScriptError:  # the server restarted, or its scripts were flushed
                self._sha = await self._client.script_load(_SCRIPT)
                results = await self._evaluate(calls)
        if -1 in results:
            raise ScoresLostError(
                "the sorted list in Redis is empty; it is filled again from the last reports"
            )
        return [ReportResult(result) for result in results]

    async def _evaluate(self, calls: Sequence[Sequence[str]]) -> list[int]:
        async with self._client.pipeline(transaction=False) as pipe:
            for arguments in calls:
                pipe.evalsha(self._sha, len(_KEYS), *_KEYS, *arguments)
            results: list[int] = await pipe.execute()
        return results

    def _arguments(self, state: NodeState, mode: _Mode) -> list[str]:
        scores = node_scores(self._rooms_of(state), self._formula)
        report = msgspec.json.encode(state).decode() if mode is not _Mode.RESCORE else ""
        head = [state.node, str(state.epoch), str(state.seq), report, repr(scores.node), mode.value]
        return head + [text for uuid, score in scores.gpus.items() for text in (uuid, repr(score))]

    @contextlib.asynccontextmanager
    async def _asking(self, request: str) -> AsyncIterator[None]:
        """Bound an exchange in time, and name it in the error."""
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except (RedisTimeoutError, TimeoutError) as error:
            # Redis, the network or this process's own event loop may have been too slow.
            late = f"no answer was read within {self._timeout_s:g} s"
            raise ScoresAwayError(f"Redis did not {request}: {late}") from error
        except (RedisError, OSError) as error:
            hint = "; is it running?" if isinstance(error, (RedisConnectionError, OSError)) else ""
            raise ScoresAwayError(f"Redis did not {request}: {_error_text(error)}{hint}") from error


def _order(text: str) -> tuple[int, int]:
    """Parse `<epoch> <seq>` as the script writes it; any other text counts as older than every report."""
    epoch, _, seq = text.partition(" ")
    return (int(epoch), int(seq)) if epoch.isdecimal() and seq.isdecimal() else (0, 0)


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__
