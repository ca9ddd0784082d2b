"""A Lease has one holder at a time, by the holder's and the followers' own clocks alone."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from plimsoll.kube import lease as lease_module
from plimsoll.kube.client import KubeClient, connect
from plimsoll.kube.lease import Lease, LeasedTransport, LeaseLostError, clock_s
from plimsoll.kube.lease_rules import NOTE, RENEWALS, LeaseTiming, Notes
from plimsoll.kube.transport import Body, PatchKind, TransientError, Transport
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import PATIENCE_S, until

PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases/of-a-test"
LONG = LeaseTiming(30)


@dataclass(slots=True)
class Clock:
    """A clock that a test moves on; it runs like the real one otherwise, or stands still."""

    ahead_s: float = 0.0
    stands_still: bool = False

    def __call__(self) -> float:
        """See `clock_s`."""
        return self.ahead_s if self.stands_still else clock_s() + self.ahead_s


@dataclass(slots=True)
class Candidate:
    """A process that wants the Lease."""

    lease: Lease
    clock: Clock
    task: asyncio.Task[None] | None = field(default=None)


@pytest.fixture
async def start(
    apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Candidate]]:
    """Starts processes that want the Lease, which nobody holds. Its return may take a busy machine a while."""
    monkeypatch.setattr(lease_module, "RELEASE_S", PATIENCE_S)
    await apiserver.call("DELETE", PATH)
    await apiserver.must("POST", PATH.rpartition("/")[0], {"metadata": {"name": "of-a-test"}, "spec": {}})
    tasks: list[asyncio.Task[None]] = []
    async with connect(apiserver.kubeconfig()) as client:

        def start(
            identity: str, duration_s: int = 30, *, stands_still: bool = False, notes: Notes | None = None
        ) -> Candidate:
            clock = Clock(stands_still=stands_still)
            lease = Lease(client, "default", "of-a-test", identity, LeaseTiming(duration_s), clock=clock)
            lease.notes = notes
            task: asyncio.Task[None] = asyncio.create_task(lease.run())
            tasks.append(task)
            return Candidate(lease, clock, task)

        yield start
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await apiserver.call("DELETE", PATH)


async def end(candidate: Candidate) -> None:
    """End a process in good order."""
    assert candidate.task is not None
    candidate.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await candidate.task
    await candidate.lease.release()


async def test_one_of_many_gets_it_and_the_next_once_it_is_given_back(
    apiserver: ApiServer, start: Callable[..., Candidate]
) -> None:
    """Exactly one of many processes makes and holds the Lease. After it is given back, the next one need not wait."""
    await apiserver.must("DELETE", PATH)
    all_of_them = [start(f"p{index}", duration_s=15) for index in range(5)]
    order: list[str] = []
    while all_of_them:

        async def held() -> list[Candidate]:
            return [one for one in all_of_them if one.lease.held.is_set()]

        [first] = await until(held)
        assert [one for one in all_of_them if one.lease.is_held()] in ([first], [])
        stored = (await apiserver.get(PATH))["spec"]
        assert (stored["holderIdentity"], stored["leaseTransitions"]) == (first.lease.identity, len(order))
        order.append(first.lease.identity)
        all_of_them.remove(first)
        await end(first)
    assert sorted(order) == [f"p{index}" for index in range(5)]
    assert not (await apiserver.get(PATH))["spec"].get("holderIdentity")


async def test_lease_is_given_back_although_the_last_renewal_was_not_awaited(
    apiserver: ApiServer, start: Callable[..., Candidate]
) -> None:
    """A holder that ends amid a renewal gives the Lease back in the version that the renewal made."""
    one = start("p")
    await one.lease.held.wait()
    await apiserver.must("PATCH", PATH, {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    await end(one)
    assert not (await apiserver.get(PATH))["spec"].get("holderIdentity")


async def test_holder_that_stood_still_does_not_write(start: Callable[..., Candidate]) -> None:
    """Past the deadline a write is refused without a request, although no renewal has failed."""
    one = start("p")
    await one.lease.held.wait()
    assert one.lease.is_held()
    one.clock.ahead_s = LONG.deadline_s
    assert not one.lease.is_held()
    with pytest.raises(TransientError, match="does not hold the lease"):
        await LeasedTransport(one.lease.transport, one.lease).patch(PATH, {}, PatchKind.MERGE)


async def test_holder_that_renews_late_holds_it_again(start: Callable[..., Candidate]) -> None:
    """A holder that is past its deadline holds the Lease again after a renewal, if nobody took it meanwhile."""
    one = start("p", duration_s=1)
    await one.lease.held.wait()
    one.clock.ahead_s = 1000.0

    async def held() -> bool:
        return one.lease.is_held()

    await until(held)


async def test_holder_ends_once_another_has_it_or_it_is_deleted(
    apiserver: ApiServer, start: Callable[..., Candidate]
) -> None:
    """A holder that lost the Lease, or whose Lease was deleted, ends with an error that names the new holder."""
    one = start("p", duration_s=1)
    await one.lease.held.wait()
    await apiserver.must("PATCH", PATH, {"spec": {"holderIdentity": "other"}})
    assert one.task is not None
    with pytest.raises(LeaseLostError, match="was lost to other"):
        await one.task
    assert not one.lease.is_held()
    two = start("q", duration_s=1)
    await two.lease.held.wait()
    await apiserver.must("DELETE", PATH)
    assert two.task is not None
    with pytest.raises(LeaseLostError, match="was lost to nobody"):
        await two.task


async def test_deleted_lease_is_made_anew_only_after_its_duration(
    apiserver: ApiServer, start: Callable[..., Candidate]
) -> None:
    """A follower that finds no Lease makes one once the holder of the deleted one has surely stopped writing."""
    one = start("p")
    await one.lease.held.wait()
    two = start("q", duration_s=1, stands_still=True)
    await until(lambda: _answered(two))
    await apiserver.must("DELETE", PATH)
    two.clock.ahead_s += 1000.0  # the time in which the Lease was there does not count
    for _ in range(3):
        await _look_anew(two)
    assert (await apiserver.call("GET", PATH)).status == 404
    two.clock.ahead_s += two.lease.timing.duration_s
    await two.lease.held.wait()
    assert (await apiserver.get(PATH))["spec"]["holderIdentity"] == "q"


async def _answered(candidate: Candidate) -> bool:
    return candidate.lease.silent_s() < math.inf


async def _look_anew(candidate: Candidate) -> None:
    """Wait until a follower has read the Lease once more."""
    candidate.lease._answered_s = -math.inf
    await until(lambda: _answered(candidate))


@dataclass(slots=True)
class Diary:
    """`Notes` that count: each note names its writer and its number."""

    name: str
    inherited: list[str | None] = field(default_factory=list)
    written: int = 0
    stored_until: int = 0

    def found(self, note: str | None) -> None:
        """See `Notes`."""
        self.inherited.append(note)

    def next(self, version: int) -> str:  # noqa: ARG002 - as in `Notes`
        """See `Notes`."""
        self.written += 1
        return f"{self.name} {self.written}"

    def stored(self) -> None:
        """See `Notes`."""
        self.stored_until = self.written


async def _note(apiserver: ApiServer) -> str:
    return str((await apiserver.get(PATH))["metadata"]["annotations"][NOTE])


async def test_holder_finds_the_last_note_of_the_holder_before(
    apiserver: ApiServer, start: Callable[..., Candidate]
) -> None:
    """Each renewal brings a note, and the next holder gets the last one, but none that a third holder left behind."""
    diary = Diary("p")
    one = start("p", notes=diary)
    await one.lease.held.wait()
    assert diary.inherited == [None]
    first = diary.stored_until
    one.lease.hurry()  # the Lease is good for half a minute

    async def is_renewed() -> bool:
        return diary.stored_until > first

    await until(is_renewed)
    await end(one)
    note = await _note(apiserver)  # of the last renewal, which may have come at any time
    second = Diary("q")
    two = start("q", notes=second)
    await two.lease.held.wait()
    assert [f"1 {found}" for found in second.inherited] == [note]
    await end(two)
    three = start("r")  # of a version that writes no notes
    await three.lease.held.wait()
    await end(three)
    third = Diary("s")
    four = start("s", notes=third)
    await four.lease.held.wait()
    assert third.inherited == [None]


@dataclass(slots=True)
class Scripted:
    """A transport of one Lease; a test may make it silent.

    Attributes:
        answers: whether requests are answered.
        version: the version of the Lease; each answer raises it.
    """

    answers: bool = True
    version: int = 0

    async def get(self, path: str, query: object = ()) -> bytes:  # noqa: ARG002 - as in `Transport`
        """See `Transport`."""
        return await self._answer()

    async def post(self, path: str, body: object) -> bytes:  # noqa: ARG002 - as in `Transport`
        """See `Transport`."""
        return await self._answer()

    async def patch(self, path: str, body: object, kind: PatchKind) -> bytes:  # noqa: ARG002 - as in `Transport`
        """See `Transport`."""
        return await self._answer()

    async def delete(self, path: str, body: object) -> bytes:  # noqa: ARG002 - as in `Transport`
        """See `Transport`."""
        return await self._answer()

    def stream(
        self, path: str, query: object, read_timeout_s: float
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See `Transport`."""
        raise NotImplementedError

    async def _answer(self) -> bytes:
        if not self.answers:
            await asyncio.Event().wait()
        self.version += 1
        stored = {
            "metadata": {"uid": "u", "resourceVersion": str(self.version)},
            "spec": {"holderIdentity": "p"},
        }
        return json.dumps(stored).encode()


@contextlib.asynccontextmanager
async def holding(transport: Scripted, timing: LeaseTiming = LONG) -> AsyncIterator[Lease]:
    """A process that holds the Lease."""
    lease = Lease(transport, "default", "of-a-test", "p", timing)
    task: asyncio.Task[None] = asyncio.create_task(lease.run())
    try:
        await lease.held.wait()
        yield lease
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_write_lasts_as_long_as_renewals_come_and_no_longer() -> None:
    """A slow write outlives the deadline of the renewal before it, and is cut off once no renewal comes."""
    transport = Scripted()
    async with holding(transport, LeaseTiming(1)) as lease:
        write = asyncio.create_task(_endless_write(lease))
        renewals = transport.version
        while transport.version < renewals + 3 * RENEWALS:
            await asyncio.sleep(0.05)  # renewals go on meanwhile
            if write.done():  # the machine stood still past the deadline: begin anew
                write = asyncio.create_task(_endless_write(lease))
                renewals = transport.version
        transport.answers = False
        with pytest.raises(TransientError, match="was not renewed during the write"):
            await write
        assert not lease.is_held()


async def test_lease_is_not_given_back_right_after_a_write_was_cut_off() -> None:
    """After a write was cut off, no request gives the Lease back: the server may still be working on the write."""
    transport = Scripted()
    async with holding(transport) as lease:
        write = asyncio.create_task(_endless_write(lease))
        await asyncio.sleep(0)  # the write begins
        write.cancel()
        await asyncio.wait([write])
    before = transport.version
    await lease.release()
    assert transport.version == before


async def test_lease_is_settled_once_no_write_is_under_way() -> None:
    """`settled` waits for each write, and for those that begin meanwhile."""
    async with holding(Scripted()) as lease:
        await lease.writes.settled()
        first, second = asyncio.Event(), asyncio.Event()

        async def write(end: asyncio.Event) -> None:
            async with lease.writes.while_held("a write"):
                await end.wait()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write(first))
            await asyncio.sleep(0)
            settled = tasks.create_task(lease.writes.settled())
            await asyncio.sleep(0)
            tasks.create_task(write(second))
            first.set()
            for _ in range(5):
                await asyncio.sleep(0)
            assert not settled.done()
            second.set()


async def _endless_write(lease: Lease) -> None:
    async with lease.writes.while_held("a write"):
        await asyncio.Event().wait()


@dataclass
class Stalling:
    """A transport whose process stands still for a minute between the check of the Lease and the request."""

    client: KubeClient
    now_s: float = 0.0

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        self.now_s += 60
        return await self.client.post(path, body)


async def test_write_that_is_sent_too_late_is_not_sent(apiserver: ApiServer, namespace: str) -> None:
    """A process that stood still after its check of the Lease, and goes on, sends nothing to the server."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with connect(apiserver.kubeconfig()) as client, holding(Scripted()) as lease:
        stalling = Stalling(client)
        lease.writes.clock = lambda: clock_s() + stalling.now_s
        with pytest.raises(TransientError):
            await LeasedTransport(cast("Transport", stalling), lease).post(
                path, {"metadata": {"name": "late"}}
            )
    assert (await apiserver.call("GET", f"{path}/late")).status == 404
