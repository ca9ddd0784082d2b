"""The sorted list in Redis (or Valkey): nodes and GPUs by score, and each node's last report.

The list is published for people and other programs. No decision reads it, so its loss costs a refill and nothing
else. What always holds: a report and its scores change together (one Lua script), and only for a newer report by
(`epoch`, `seq`). Scores alone change only for the report that is in the list. A list that was lost, wholly or by
going back in time, is never read as if it were complete: the key `generation` is written last when the list is
filled, and its absence is an error of its own. Other clients may write anything into the keys, so the list can be
compared with the reports: keys of a wrong type, entries of unknown nodes, and entries that differ are found and
replaced.
"""

import contextlib
import enum
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from redis.exceptions import NoScriptError

from placer.core.ledger import Ledger
from placer.core.room import Room, room_on
from placer.core.score import node_scores
from placer.core.view import node_view
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from plimsoll.part.errors import PlimsollError
from plimsoll.placer_api import redis_keys as keys
from plimsoll.redis_client import exchange, open_redis

TIMEOUT_S: Final = 5.0
"""How long one exchange may take; a healthy server needs about a millisecond."""

CONNECTIONS: Final = 8
"""The most connections to the server: each task that writes or compares needs one."""

CHUNK: Final = 200
"""Reports in one exchange of a fill: some 100 KiB, so that other clients wait for a short time only."""

NO_ORDER: Final = (0, 0)
"""Older than every report."""

_NOTHING_FOUND: Final[Mapping[NodeName, str]] = {}

RoomsOf = Callable[[NodeState], Iterable[Room]]
"""Gives the rooms of all GPUs in a report, by which the report is scored."""

_KEYS: Final = (keys.NODES, keys.GPUS, keys.REPORTS, keys.ORDER, keys.GENERATION)
_TYPES: Final = {
    keys.NODES: "zset",
    keys.GPUS: "zset",
    keys.REPORTS: "hash",
    keys.ORDER: "hash",
    keys.GENERATION: "string",
}
_SCRIPT: Final = (Path(__file__).parent / "scores.lua").read_text()


class ScoresAwayError(PlimsollError):
    """Redis did not answer, or not as expected: try again after a pause; nothing is lost."""


class ScoresLostError(ScoresAwayError):
    """Redis answers and has lost the list: fill the list again before it is read."""


class _DamagedError(ScoresAwayError):
    """Somebody else wrote a report that cannot be read."""


class ReportResult(enum.Enum):
    """Whether a report, or its scores, changed the list."""

    APPLIED = 1
    STALE = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of entries in the list.

    Attributes:
        nodes, gpus, reports, order: the entries of each key, see `plimsoll.placer_api.redis_keys`.
    """

    nodes: int
    gpus: int
    reports: int
    order: int


class _Mode(enum.Enum):
    """The argument of the script, see `scores.lua`."""

    REPORT = "report"
    FILL = "fill"
    RESCORE = "rescore"
    MEND = "mend"


def measured_rooms(state: NodeState) -> Iterable[Room]:
    """The rooms of the GPUs in a report if nothing is promised there."""
    return [room_on(state.node, gpu, Ledger()) for gpu in node_view(state).gpus]


class ScoreList:
    """The list, over one pool of connections. Every method may be called from several tasks at once."""

    def __init__(
        self,
        url: str,
        *,
        rooms_of: RoomsOf = measured_rooms,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._rooms_of = rooms_of
        self._timeout_s = timeout_s
        self._client = open_redis(url, timeout_s=timeout_s, connections=CONNECTIONS)
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

    async def fill(self, states: Sequence[NodeState]) -> set[NodeName]:
        """Write the reports that are newer than the list's, and mark the list complete.

        Keys of a wrong type are deleted first.

        Returns:
            The nodes whose report stood in the list already, or a newer one. Their scores may be outdated.

        Raises:
            ScoresAwayError: no answer. Fill again.
        """
        await self.drop_wrong_types()
        listed = await self.orders() or {}
        news = [state for state in states if listed.get(state.node, NO_ORDER) < state.order]
        known = {state.node for state in states}.difference(state.node for state in news)
        for start in range(0, len(news), CHUNK):
            chunk = news[start : start + CHUNK]
            results = await self._update(chunk, _Mode.FILL)
            known.update(s.node for s, r in zip(chunk, results, strict=True) if r is ReportResult.STALE)
        async with self._asking("write the list's generation"):
            await self._client.set(keys.GENERATION, secrets.token_hex(8), nx=True)
        return known

    async def orders(self) -> dict[NodeName, tuple[int, int]] | None:
        """Node → (epoch, seq) of the report that the list holds; None if the list was lost.

        Raises:
            ScoresAwayError: no answer.
        """
        async with self._asking("give the order of its reports"), self._client.pipeline() as pipe:
            pipe.exists(keys.GENERATION)
            pipe.hgetall(keys.ORDER)
            complete, orders = await pipe.execute()
        return {NodeName(node): _order(text) for node, text in orders.items()} if complete else None

    async def drop_wrong_types(self) -> bool:
        """Delete those of our keys that hold another type of value; returns whether there was one.

        Raises:
            ScoresAwayError: no answer.
        """
        async with self._asking("give the types of its keys"):
            async with self._client.pipeline() as pipe:
                for key in _TYPES:
                    pipe.type(key)
                types = await pipe.execute()
            wrong = [
                key for key, found in zip(_TYPES, types, strict=True) if found not in (_TYPES[key], "none")
            ]
            if wrong:
                await self._client.delete(*wrong)
        return bool(wrong)

    async def sizes(self) -> Sizes:
        """The number of entries in the list.

        Raises:
            ScoresAwayError: no answer.
        """
        async with self._asking("give its sizes"), self._client.pipeline() as pipe:
            pipe.zcard(keys.NODES)
            pipe.zcard(keys.GPUS)
            pipe.hlen(keys.REPORTS)
            pipe.hlen(keys.ORDER)
            return Sizes(*await pipe.execute())

    async def differing(self, states: Sequence[NodeState]) -> dict[NodeName, str]:
        """The nodes whose entries are not as these reports and the promises of this moment make them.

        Returns:
            By node, its order as it was found: the argument of `mend`. Empty where there is none.

        Raises:
            ScoresAwayError: no answer.
        """
        scores = [node_scores(self._rooms_of(state)) for state in states]
        nodes: list[str] = [state.node for state in states]
        members = [f"{s.node}/{uuid}" for s, of in zip(states, scores, strict=True) for uuid in of.gpus]
        if not nodes:
            return {}
        async with self._asking("give its entries"), self._client.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.ORDER, nodes)
            pipe.hmget(keys.REPORTS, nodes)
            pipe.zmscore(keys.NODES, nodes)
            if members:
                pipe.zmscore(keys.GPUS, members)
            orders, reports, by_node, *rest = await pipe.execute()
        by_gpu = dict(zip(members, rest[0] if rest else (), strict=True))
        found: dict[NodeName, str] = {}
        for state, of, *entry in zip(states, scores, orders, reports, by_node, strict=True):
            expected = [f"{state.epoch} {state.seq}", _encoded(state), of.node]
            gpus = all(by_gpu[f"{state.node}/{uuid}"] == score for uuid, score in of.gpus.items())
            if entry != expected or not gpus:
                found[state.node] = entry[0] or ""
        return found

    async def mend(self, states: Sequence[NodeState], found: Mapping[NodeName, str]) -> list[ReportResult]:
        """Write reports over the entries that `differing` found, unless an entry has got another order since.

        Raises:
            ScoresLostError: the list is lost; nothing was written. Call `fill`.
            ScoresAwayError: no answer; some reports may have been written. Compare again.
        """
        return await self._update(states, _Mode.MEND, found)

    async def drop_strangers(self, reports: Mapping[NodeName, NodeState]) -> int:
        """Remove the entries of nodes and GPUs that have no report; returns their number.

        Reads the keys in slices, so other clients wait for none of them for long.

        Raises:
            ScoresAwayError: no answer; drop again.
        """
        dropped = 0

        def is_known(member: str) -> bool:
            node, _, uuid = member.partition("/")
            state = reports.get(NodeName(node))
            return state is not None and any(gpu.uuid == uuid for gpu in state.gpus)

        def is_reported(node: str) -> bool:
            return node in reports

        for key in (keys.NODES, keys.GPUS, keys.REPORTS, keys.ORDER):
            cursor = 0
            while True:
                async with self._asking("give its entries"):
                    read = self._client.zscan if _TYPES[key] == "zset" else self._client.hscan
                    cursor, entries = await read(key, cursor, count=CHUNK)
                    members = [str(one[0] if _TYPES[key] == "zset" else one) for one in entries]
                    known = is_known if key == keys.GPUS else is_reported
                    strangers = [member for member in members if not known(member)]
                    if strangers:
                        remove = self._client.zrem if _TYPES[key] == "zset" else self._client.hdel
                        dropped += await remove(key, *strangers)
                if not cursor:
                    break
        return dropped

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
            raise _DamagedError(f"a report in Redis is damaged ({error}); flush {keys.REPORTS}") from error

    async def forget(self, node: NodeName) -> None:
        """Take a node out of the list; a later report brings the node back.

        Raises:
            ScoresAwayError: no answer; forget again.
        """
        members: list[str] = []
        with contextlib.suppress(_DamagedError):  # then `drop_strangers` finds the GPUs
            known = await self.reports([node])
            members = [f"{node}/{gpu.uuid}" for state in known.values() for gpu in state.gpus]
        async with self._asking(f"forget {node}"), self._client.pipeline() as pipe:
            pipe.zrem(keys.NODES, node)
            pipe.hdel(keys.REPORTS, node)
            pipe.hdel(keys.ORDER, node)
            if members:
                pipe.zrem(keys.GPUS, *members)
            await pipe.execute()

    async def _update(
        self, states: Sequence[NodeState], mode: _Mode, found: Mapping[NodeName, str] = _NOTHING_FOUND
    ) -> list[ReportResult]:
        if not states:
            return []
        calls = [self._arguments(state, mode, found.get(state.node, "")) for state in states]
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

    def _arguments(self, state: NodeState, mode: _Mode, found: str) -> list[str]:
        scores = node_scores(self._rooms_of(state))
        report = _encoded(state) if mode is not _Mode.RESCORE else ""
        head = [state.node, str(state.epoch), str(state.seq), report, repr(scores.node), mode.value, found]
        by_gpu = [
            text for uuid, score in scores.gpus.items() for text in (repr(score), f"{state.node}/{uuid}")
        ]
        return [*head, msgspec.json.encode(by_gpu).decode()]

    def _asking(self, request: str) -> AbstractAsyncContextManager[None]:
        return exchange(request, self._timeout_s, ScoresAwayError)


def _encoded(state: NodeState) -> str:
    return msgspec.json.encode(state).decode()


def _order(text: str) -> tuple[int, int]:
    """Parse `<epoch> <seq>` as the script writes it; any other text counts as older than every report."""
    epoch, _, seq = text.partition(" ")
    return (int(epoch), int(seq)) if epoch.isdecimal() and seq.isdecimal() else NO_ORDER
