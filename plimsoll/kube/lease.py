"""A Lease of `coordination.k8s.io/v1`: at most one of several processes does what the Lease stands for.

A holder renews the Lease several times per duration. The others read it, and one of them takes it once they have
themselves seen it unchanged for its whole duration. What always holds:

- Each change of the Lease names the version that it replaces, so of two that change it at once one is refused.
- No process compares its clock with another's. A follower counts from its own reading, which is later than the
  holder's request. A holder counts from the moment before its request. Both clocks go on while the machine sleeps.
- `is_held` is False after `LeaseTiming.deadline_s` without a renewal, whatever the event loop did meanwhile. Writes
  through `LeasedWrites` ask it again when they are sent, and are cut off at that moment. The rest of the duration is
  for a write that the server is still working on.
- A holder that renewed too late, before any other process took the Lease, holds it again: nobody held it meanwhile,
  because the Lease's version had not changed. Once another process has it, `run` raises `LeaseLostError`.
- A Lease that somebody deleted is lost too: its holder may not make it anew, because another process may have made,
  held and lost one meanwhile. A follower makes a Lease only after it has found none for a whole duration. The holder
  of the deleted Lease has stopped writing by then.

Nothing but a new process can hold a Lease that was lost, so no state of the earlier time survives. A holder may leave
a note for the next one in the Lease (`Notes`).
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec

from plimsoll.kube.client import before_sending
from plimsoll.kube.lease_rules import (
    ADDRESS,
    NOTE,
    LeaseTiming,
    Notes,
    SeenLease,
    StoredLease,
    free_s,
    seen,
    taken,
)
from plimsoll.kube.transport import (
    ApiError,
    Body,
    ConflictError,
    NotFoundError,
    PatchKind,
    Query,
    TransientError,
    Transport,
    text_of,
)
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import CannotGoOnError
from plimsoll.part.log import get_logger

FROM_MEMORY: Final = (("resourceVersion", "0"),)
"""The query of a reading that the API server answers from its memory. An outdated answer does no harm: to take the
Lease in an outdated version is refused."""
RELEASE_S: Final = 5.0
"""The longest time that giving the Lease back may take at the end. A busy machine needs more than a second."""

log = get_logger()


class LeaseLostError(CannotGoOnError):
    """Another process has the Lease: this one must end, and may start again as a follower."""


def clock_s() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class LeasedWrites:
    """The writes that need a Lease, each of which is cut off once the Lease may not be held any more.

    Attributes:
        lease: its name.
        clock: see `Lease`.
        good_until_s: no write may be under way from here on.
        cut_s: when a write was last cut off.
    """

    lease: str
    clock: Callable[[], float]
    good_until_s: float = -math.inf
    cut_s: float = -math.inf
    _limits: set[asyncio.Timeout] = field(default_factory=set)  # of the writes under way
    _ended: asyncio.Event = field(default_factory=asyncio.Event)  # a write has ended

    def may_go(self) -> bool:
        """Whether a write may be under way now."""
        return self.clock() < self.good_until_s

    def extend(self, good_until_s: float) -> None:
        """Let writes be under way until then, also those that are."""
        self.good_until_s = good_until_s
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(self._limit_s())

    @contextlib.asynccontextmanager
    async def while_held(self, what: str) -> AsyncIterator[None]:
        """Do a write only while this process holds the Lease, and cut the write off when it may not any more.

        A write may take long, as long as the Lease is renewed meanwhile.

        Args:
            what: the write, for the message.

        Raises:
            TransientError: the Lease is not held (nothing was done), or was not renewed during the write (which may
                have happened).
        """
        if not self.may_go():
            raise TransientError(f"{what}: this process does not hold the lease {self.lease}")
        check = before_sending.set(self._check)
        limit = asyncio.timeout_at(self._limit_s())
        try:
            async with limit:
                self._limits.add(limit)
                yield
        except TimeoutError as error:
            self.cut_s = self.clock()
            raise TransientError(
                f"{what}: the lease {self.lease} was not renewed during the write"
            ) from error
        except asyncio.CancelledError:
            self.cut_s = self.clock()
            raise
        finally:
            self._limits.discard(limit)
            self._ended.set()
            before_sending.reset(check)

    async def settled(self) -> None:
        """Return once no write is under way."""
        while self._limits:
            self._ended.clear()
            await self._ended.wait()

    def _check(self) -> None:
        """The check of a write at the moment at which it is sent, see `before_sending`."""
        if not self.may_go():
            raise OSError(f"the lease {self.lease} is not held any more")

    def _limit_s(self) -> float:
        """The moment on the loop's clock until which writes may be under way."""
        return asyncio.get_running_loop().time() + self.good_until_s - self.clock()


@dataclass(slots=True)
class Lease:
    """A Lease that a process first follows and then holds; `run` does both.

    Attributes:
        transport: the connection to the API server.
        namespace, name: of the Lease.
        identity: the name of this process, unlike that of any other process at any time.
        timing: see `LeaseTiming`.
        held: set when this process first holds the Lease.
        on_failure: called for each renewal without an answer.
        clock: seconds, see `clock_s`.
        notes: writes the notes; None for a Lease without notes.
        address: the URL at which this process answers, for those that follow; empty for none.
        writes: the writes that need the Lease.
    """

    transport: Transport
    namespace: str
    name: str
    identity: str
    timing: LeaseTiming = field(default_factory=LeaseTiming)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    on_failure: Callable[[], None] = lambda: None
    clock: Callable[[], float] = clock_s
    notes: Notes | None = None
    address: str = ""
    writes: LeasedWrites = field(init=False)
    _hurried: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: SeenLease | None = None
    _answered_s: float = -math.inf
    _fails: bool = False

    def __post_init__(self) -> None:
        self.writes = LeasedWrites(self.name, self.clock)

    def is_held(self) -> bool:
        """Whether this process certainly holds the Lease at this moment."""
        return self.writes.may_go()

    def silent_s(self) -> float:
        """Seconds since the API server last answered about the Lease; infinite before the first answer."""
        return self.clock() - self._answered_s

    @property
    def transitions(self) -> int:
        """How often the Lease went to another process, as last read."""
        record = self._seen.record if self._seen else None
        return record.transitions if record else 0

    @property
    def leader_address(self) -> str | None:
        """The URL at which another process that holds the Lease answers, as last read; None if none is known."""
        record = self._seen.record if self._seen else None
        return record.address if record is not None and record.holder not in ("", self.identity) else None

    def hurry(self) -> None:
        """Have the next renewal, and with it a new note, at once; returns before that."""
        self._hurried.set()

    async def run(self) -> NoReturn:
        """Follow until the Lease is free, take it, and renew it until cancelled. Call `release` afterwards.

        Raises:
            LeaseLostError: another process has the Lease that this one held.
        """
        await self._acquire()
        while True:
            heed_cancellation()
            began_s = self.clock()
            try:
                await self._renew()
            except (ApiError, TimeoutError) as error:
                self.on_failure()
                self._log_failure("lease not renewed, retrying", error)
            else:
                self._fails = False
            await self._until_due(began_s)

    async def _until_due(self, began_s: float) -> None:
        """Wait for the time of the next renewal. After a failure nothing hurries it."""
        pause_s = max(0.0, began_s + self.timing.renew_s - self.clock())
        if self._fails:
            await asyncio.sleep(pause_s)
        else:  # until the next renewal is due
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurried.wait()
        self._hurried.clear()

    async def release(self) -> None:
        """Give a held Lease back, so that a follower takes it at once.

        Call this once `run` and every write have ended. Right after a write that was cut off, the Lease is left to
        expire, because the server may still be working on that write.
        """
        was_cut = self.clock() - self.writes.cut_s < self.timing.duration_s
        record = self._seen.record if self._seen else None
        if record is None or record.holder != self.identity:
            return
        if was_cut:
            log.info("lease not given back; it expires", name=self.name, error="a write was cut off")
            return
        self.writes.good_until_s = -math.inf
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._give_back(record)
        except (ApiError, TimeoutError) as error:
            log.info("lease not given back; it expires", name=self.name, error=text_of(error))

    async def _give_back(self, record: StoredLease | None) -> None:
        while record is not None and record.holder == self.identity:
            body: Body = {"metadata": _precondition(record), "spec": {"holderIdentity": ""}}
            try:
                await self.transport.patch(self._path(), body, PatchKind.MERGE)
            except ConflictError:  # the server had stored a renewal whose answer was not awaited any more
                record = await self._read()
            else:
                return

    async def _acquire(self) -> None:
        while not self.held.is_set():
            heed_cancellation()
            try:
                pause_s = await self._follow()
            except (ApiError, TimeoutError) as error:
                self._log_failure("lease cannot be followed, retrying", error)
                pause_s = self.timing.look_s
            else:
                self._fails = False
            await asyncio.sleep(pause_s)

    async def _follow(self) -> float:
        """Read the Lease, and take it if it is free. Return the seconds until the next reading."""
        record = await self._read(FROM_MEMORY)
        now_s = self.clock()
        self._seen = seen(self._seen, record, now_s)
        wait_s = free_s(self._seen, self.identity, self.timing) - now_s
        if wait_s > 0:
            return min(wait_s, self.timing.look_s)
        await self._take(record)
        return self.timing.look_s

    async def _take(self, record: StoredLease | None) -> None:
        if self.notes is not None:
            self.notes.found(record.note if record is not None else None)
        try:
            await self._write(record)
        except ConflictError:
            return  # another process was faster, or the holder renewed after all
        log.info("lease taken", name=self.name, identity=self.identity, transitions=self.transitions)
        self.held.set()

    async def _renew(self) -> None:
        assert self._seen is not None
        assert self._seen.record is not None
        try:
            await self._write(self._seen.record)
        except (ConflictError, NotFoundError) as error:
            record = await self._read()
            if record is None or record.holder != self.identity:
                self.writes.good_until_s = -math.inf
                holder = record.holder if record else "nobody: the lease was deleted"
                message = f"the lease {self.namespace}/{self.name} was lost to {holder or 'nobody'}"
                raise LeaseLostError(message) from error
            # An earlier change was stored, though its answer was lost; the next one replaces that version.
            self._seen = seen(self._seen, record, self.clock())

    async def _read(self, query: Query = ()) -> StoredLease | None:
        """The Lease, or None if there is none."""
        try:
            async with asyncio.timeout(self.timing.duration_s):
                body = await self.transport.get(self._path(), query)
        except NotFoundError:
            self._answered_s = self.clock()
            return None
        return self._decoded(body)

    async def _write(self, record: StoredLease | None) -> None:
        """Take or renew the Lease in this version.

        Raises:
            ConflictError: the Lease changed.
            NotFoundError: the Lease was deleted.
        """
        began_s = self.clock()
        spec = taken(record, self.identity, self.timing, datetime.now(UTC))
        annotations = self._annotations(record, spec)
        async with asyncio.timeout(self.timing.deadline_s):
            if record is None:
                kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
                metadata = {"name": self.name, "namespace": self.namespace, **annotations}
                body = await self.transport.post(
                    self._collection(), {**kind, "metadata": metadata, "spec": spec}
                )
            else:
                change = {"metadata": {**_precondition(record), **annotations}, "spec": spec}
                body = await self.transport.patch(self._path(), change, PatchKind.MERGE)
        self._seen = seen(self._seen, self._decoded(body), self.clock())
        if self.notes is not None:
            self.notes.stored()
        self.writes.extend(began_s + self.timing.deadline_s)

    def _annotations(
        self, record: StoredLease | None, spec: Mapping[str, object]
    ) -> dict[str, dict[str, str]]:
        """The metadata that brings the next note."""
        if self.notes is None:
            return {}
        before = 0 if record is None else record.transitions
        version = record.metadata.resourceVersion if record is not None else "0"
        note = self.notes.next(int(version) if version.isdecimal() else 0)
        transitions = spec.get("leaseTransitions", before)
        return {"annotations": {NOTE: f"{transitions} {note}", ADDRESS: f"{transitions} {self.address}"}}

    def _log_failure(self, message: str, error: Exception) -> None:
        """Log the first failure of a row: during an outage there are several a second."""
        if not self._fails:
            log.warning(message, name=self.name, held=self.is_held(), error=text_of(error))
        self._fails = True

    def _decoded(self, body: bytes) -> StoredLease:
        try:
            record = msgspec.json.decode(body, type=StoredLease)
        except msgspec.MsgspecError as error:
            raise TransientError(f"{self._path()}: no Lease came, but {body[:80]!r}") from error
        self._answered_s = self.clock()
        return record

    def _collection(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    def _path(self) -> str:
        return f"{self._collection()}/{self.name}"


@dataclass(frozen=True, slots=True)
class LeasedTransport:
    """A `Transport` whose writes happen only while a Lease is held; reads always happen."""

    real: Transport
    lease: Lease

    async def get(self, path: str, query: Query = ()) -> bytes:
        """See `Transport`."""
        return await self.real.get(path, query)

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`; raises `TransientError` without the Lease."""
        async with self.lease.writes.while_held(f"POST {path}"):
            return await self.real.post(path, body)

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`; raises `TransientError` without the Lease."""
        async with self.lease.writes.while_held(f"PATCH {path}"):
            return await self.real.patch(path, body, kind)

    async def delete(self, path: str, body: Body) -> bytes:
        """See `Transport`; raises `TransientError` without the Lease."""
        async with self.lease.writes.while_held(f"DELETE {path}"):
            return await self.real.delete(path, body)

    def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See `Transport`."""
        return self.real.stream(path, query, read_timeout_s)


def _precondition(record: StoredLease) -> dict[str, str]:
    return {"uid": record.metadata.uid, "resourceVersion": record.metadata.resourceVersion}
