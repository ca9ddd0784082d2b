"""The broker requests a refused pod again when another pod changes, as a list is in no order of time.

A register that only keeps shares within 100 stands in for the engine. The tests check when it is called.
tests/e2e joins the real parts.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from hook.broker.pods import Follower, registration
from plimsoll.broker.wire import ContainerUse, Description, Register, Unregister
from plimsoll.ids import ContainerName
from plimsoll.kube.models import Container, ObjectMeta, Pod, PodSpec, PodStatus, ResourceRequirements
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Synced
from plimsoll.lifespan import Lifespan
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from tests.hook.broker.conftest import until
from tests.plimsoll.bound import bound


class Shares:
    """A register of pods whose shares fit together."""

    def __init__(self, *known: Register) -> None:
        self.registered = {request.pod: request for request in known}
        self.asked_count = 0

    async def take(self, event: Register | Unregister) -> None:
        """Register a pod, or refuse it if the sum would pass 100."""
        self.asked_count += 1
        if isinstance(event, Unregister):
            self.registered.pop(event.pod, None)
            return
        after = {**self.registered, event.pod: event}
        if sum(map(share, after.values())) > 100:
            raise InputError("share_pct", share(event), "is too much", "give less")
        self.registered = after

    async def describe(self) -> Description:
        """Describe all registered pods."""
        uses = [
            ContainerUse(
                pod=one.pod, namespace="ns", pod_name=one.name, container=one.containers[0], processes=()
            )
            for one in self.registered.values()
        ]
        return Description(containers=tuple(uses))

    def shares(self) -> dict[str, int]:
        """The registered shares by pod."""
        return {pod: share(request) for pod, request in self.registered.items()}


def share(request: Register) -> int:
    """The pod's share on its only GPU."""
    return request.containers[0].lines[0].share_pct


def pod(uid: str, share_pct: int, phase: str = "Running") -> Pod:
    """A pod bound to the only GPU, with this share by its decision."""
    limits: dict[str, str | int | float] = {"plimsoll.dev/gpu-memory": "1Gi"}
    grant = {"gpu": "GPU-1", "memory_bytes": GIB, "line_bytes": GIB, "share_pct": share_pct}
    decision = {"score": 1.0, "policy": "headroom", "time": "t", "containers": {"main": [grant]}}
    annotations = {"plimsoll.dev/decision": json.dumps(decision)}
    container = Container(name="main", resources=ResourceRequirements(limits=limits))
    metadata = ObjectMeta(name=uid, namespace="ns", uid=uid, annotations=annotations)
    spec = PodSpec(containers=[container], nodeName="n")
    return Pod(metadata=metadata, spec=spec, status=PodStatus(phase=phase))


@asynccontextmanager
async def following(shares: Shares) -> AsyncIterator[asyncio.Queue[Change[Pod]]]:
    """A running follower."""
    changes: asyncio.Queue[Change[Pod]] = asyncio.Queue()
    task = asyncio.create_task(Follower(shares).follow(changes))
    try:
        yield changes
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def settled(shares: Shares, expected: dict[str, int]) -> None:
    """Wait until exactly these shares are registered."""

    async def holds() -> bool:
        return shares.shares() == expected

    await until(holds, f"{expected}")


async def known(*pods: tuple[str, int]) -> Shares:
    """The pods that an earlier broker registered."""
    shares = Shares()
    async with following(shares) as changes:
        for uid, share_pct in pods:
            changes.put_nowait(Added(pod(uid, share_pct)))
        await settled(shares, dict(pods))
    return Shares(*shares.registered.values())


async def test_a_list_that_names_who_took_room_before_who_gave_it_is_taken_in_whole() -> None:
    """All changes from the time without a broker are applied.

    The list has the raised share before the lowered one.
    """
    shares = await known(("lowered", 60), ("raised", 40))
    async with following(shares) as changes:
        for listed in (pod("raised", 70), pod("lowered", 30)):
            changes.put_nowait(Added(listed))
        changes.put_nowait(Synced())
        await settled(shares, {"lowered": 30, "raised": 70})


async def test_a_pod_waits_for_those_that_ended_while_no_broker_was_there() -> None:
    """Pods that ended while no broker ran are found at the end of the list, whether missing or listed as ended."""
    ended: Change[Pod] = Added(pod("gone", 60, phase="Succeeded"))
    for absent in ((), (ended,)):
        shares = await known(("gone", 60))
        async with following(shares) as changes:
            for change in (Added(pod("new", 60)), *absent, Synced()):
                changes.put_nowait(change)
            await settled(shares, {"new": 60})


async def test_one_that_stays_refused_leaves_the_others_alone_and_goes_with_its_pod() -> None:
    """A refused pod is requested once for each change, not for ever, and forgotten with its deletion."""
    shares = Shares()
    async with following(shares) as changes:
        changes.put_nowait(Added(pod("first", 80)))
        changes.put_nowait(Added(pod("large", 30)))
        changes.put_nowait(Modified(pod("first", 75), pod("first", 80)))
        await settled(shares, {"first": 75})
        changes.put_nowait(Added(pod("small", 5)))
        await settled(shares, {"first": 75, "small": 5})
        assert shares.asked_count <= 7
        changes.put_nowait(Deleted(pod("large", 30)))
        changes.put_nowait(Deleted(pod("first", 75)))
        await settled(shares, {"small": 5})


async def test_a_pod_that_is_there_keeps_what_it_had_though_its_change_is_refused() -> None:
    """A registered pod keeps its share if its change is refused, and is unregistered when it goes."""
    shares = await known(("changed", 30), ("neighbour", 60))
    async with following(shares) as changes:
        for change in (Added(pod("changed", 50)), Added(pod("neighbour", 60)), Synced()):
            changes.put_nowait(change)
        changes.put_nowait(Added(pod("new", 10)))
        await settled(shares, {"changed": 30, "neighbour": 60, "new": 10})
        changes.put_nowait(Deleted(pod("changed", 50)))
        await settled(shares, {"neighbour": 60, "new": 10})


def test_the_decision_is_all_that_counts() -> None:
    """A pod's lines come from the decision, whatever its resources and other annotations say now."""
    grants = [
        {"gpu": "A", "memory_bytes": 6 * GIB, "line_bytes": 6 * GIB, "share_pct": 40, "limit_pct": 80},
        {"gpu": "B", "memory_bytes": 4 * GIB, "line_bytes": 4 * GIB, "limit_pct": 50},
    ]
    side = [{"gpu": "B", "line_bytes": 5, "share_pct": 100, "whole": True}]
    loose = [{"gpu": "A", "line_bytes": 7}]
    containers = {"main": grants, "side": side, "loose": loose}
    text = json.dumps({"score": 1.0, "policy": "headroom", "time": "t", "containers": containers})
    asks = registration(
        bound({"gpu": 1}, gpus="C", best_effort="true", gpu_share_limit="lots", decision=text)
    )
    assert asks is not None
    by_name = {one.name: one for one in asks.containers}
    main = by_name[ContainerName("main")]
    assert [(one.gpu, one.line_bytes, one.share_pct, one.limit_pct) for one in main.lines] == [
        ("A", 6 * GIB, 40, 80),
        ("B", 4 * GIB, 0, 50),
    ]
    assert [(one.name, one.whole, one.best_effort) for one in asks.containers] == [
        ("loose", False, True),
        ("main", False, False),
        ("side", True, False),
    ]


def test_init_containers_have_lines_of_their_own() -> None:
    """Init containers and sidecars of the decision are registered beside the containers, with their lifespans."""
    grant = {"gpu": "A", "memory_bytes": GIB, "line_bytes": GIB, "share_pct": 60}
    decision = {
        "score": 1.0,
        "policy": "headroom",
        "time": "t",
        "containers": {"warm": [grant], "main": [grant], "proxy": [{"gpu": "A", "line_bytes": 7}]},
        "start": {"init": ["warm", "proxy"], "sidecars": ["proxy"]},
    }
    asks = registration(bound({"gpu": 1}, decision=json.dumps(decision)))
    assert asks is not None
    assert [(one.name, one.lifespan, one.lines[0].line_bytes) for one in asks.containers] == [
        ("main", Lifespan(), GIB),
        ("proxy", Lifespan(1, sidecar=True), 7),
        ("warm", Lifespan(0), GIB),
    ]


def test_a_pod_without_a_gpu_has_no_lines() -> None:
    """A pod without a GPU has no lines."""
    assert registration(bound({})) is None


@pytest.mark.parametrize(
    ("annotations", "problem"), [({}, "None is missing"), ({"decision": "{"}, "'{' is damaged")]
)
def test_a_pod_without_a_readable_decision_is_refused_by_field(
    annotations: dict[str, str], problem: str
) -> None:
    """A bound pod that asks for a GPU and has no decision, or a damaged one, is refused by field."""
    with pytest.raises(InputError, match=rf"annotations\[plimsoll.dev/decision\]: {problem}"):
        registration(bound({"gpu": 1}, gpus="A", **annotations))
