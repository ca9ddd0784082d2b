"""The placer's decision is read back as written, and refused if damaged."""

import json

import msgspec
import pytest

from plimsoll.decision import Decision, GpuGrant, annotations_of, decision_of
from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.kube.models import ObjectMeta, Pod
from plimsoll.lifespan import Lifespan, StartOrder, start_order
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from tests.plimsoll.bound import bound

MAIN, SIDE = ContainerName("main"), ContainerName("side")
A, B = GpuUuid("GPU-A"), GpuUuid("GPU-B")


def test_a_decision_is_read_back_as_it_was_written() -> None:
    """The decision's annotation holds all grants, and a second annotation repeats the GPUs of each container."""
    decision = Decision(
        containers={
            MAIN: (
                GpuGrant(gpu=A, memory_bytes=GIB, line_bytes=GIB, share_pct=30, limit_pct=60),
                GpuGrant(gpu=B, memory_bytes=2 * GIB, line_bytes=2 * GIB),
            ),
            SIDE: (GpuGrant(gpu=A, line_bytes=5, share_pct=100, whole=True),),
        },
        score=0.5,
        policy="headroom",
        time="t",
        parts={"main/GPU-A": {"free": 0.5}},
        resized=(MAIN,),
    )
    written = annotations_of(decision)
    assert written["gpus.plimsoll.dev/main"] == "GPU-A,GPU-B"
    assert written["gpus.plimsoll.dev/side"] == "GPU-A"
    assert decision_of(Pod(metadata=ObjectMeta(name="p", annotations=dict(written)))) == decision
    assert decision_of(Pod()) is None


def test_what_a_pod_asks_for_changes_nothing_of_its_decision() -> None:
    """After the bind, changed resources and other annotations leave the pod's grants as decided."""
    given = Decision(
        containers={MAIN: (GpuGrant(gpu=A, line_bytes=GIB, whole=True, share_pct=100),)},
        score=1.0,
        policy="p",
        time="t",
    )
    text = annotations_of(given)["plimsoll.dev/decision"]
    pod = bound({"gpu": 1}, gpus="GPU-B", best_effort="true", gpu_share_limit="lots", decision=text)
    assert decision_of(pod) == given


def test_cpus_are_read_back_and_checked() -> None:
    """A decision says which CPUs a container is bound to and why another is not; a list that is none is refused."""
    given = Decision(
        containers={name: (GpuGrant(gpu=A, line_bytes=GIB),) for name in (SIDE, MAIN)},
        score=1.0,
        policy="p",
        time="t",
        cpus={MAIN: "0-3,8"},
        note="no CPUs near side",
    )
    text = annotations_of(given)["plimsoll.dev/decision"]
    assert decision_of(bound({"gpu": 1}, decision=text)) == given
    with pytest.raises(InputError, match=r"cpus\[main\].*is no list of CPUs"):
        decision_of(bound({"gpu": 1}, decision=text.replace("0-3,8", "0-3,x")))


def test_the_order_of_init_containers_is_read_back() -> None:
    """A decision says which of its containers are init containers and sidecars, and one without them says nothing."""
    given = Decision(
        containers={name: (GpuGrant(gpu=A, line_bytes=GIB),) for name in (SIDE, MAIN)},
        score=1.0,
        policy="p",
        time="t",
        start=StartOrder(init=(SIDE,), sidecars=(SIDE,)),
    )
    text = annotations_of(given)["plimsoll.dev/decision"]
    assert json.loads(text)["start"] == {"init": ["side"], "sidecars": ["side"]}
    read = decision_of(bound({"gpu": 1}, decision=text))
    assert read is not None
    assert read == given
    assert read.start.lifespan(SIDE) == Lifespan(0, sidecar=True)
    assert read.start.lifespan(MAIN) == Lifespan()
    plain = msgspec.structs.replace(given, start=start_order({MAIN: Lifespan()}))
    assert "start" not in annotations_of(plain)["plimsoll.dev/decision"]


@pytest.mark.parametrize(
    "start",
    [
        {"init": ["other"]},
        {"init": ["main", "main"]},
        {"sidecars": ["main"]},
        {"init": "main"},
        {"init": [3]},
    ],
)
def test_a_damaged_order_is_refused(start: object) -> None:
    """An order of containers that have no GPU, or stand twice, is refused by name."""
    given = {"score": 1.0, "policy": "p", "time": "t", "containers": {"main": [GRANT]}, "start": start}
    with pytest.raises(InputError, match=r"plimsoll\.dev/decision.*; recreate the pod"):
        decision_of(bound({"gpu": 1}, decision=json.dumps(given)))


GRANT = {"gpu": "A", "line_bytes": 1}


@pytest.mark.parametrize(
    "containers",
    [
        {},
        {"main": []},
        {"main": [GRANT, GRANT]},
        {"main": [{**GRANT, "line_bytes": -1}]},
        {"main": [{**GRANT, "line_bytes": "1Gi"}]},
        {"main": [{**GRANT, "memory_bytes": 0}]},
        {"main": [{**GRANT, "share_pct": -1}]},
        {"main": [{**GRANT, "share_pct": 101}]},
        {"main": [{**GRANT, "limit_pct": 0}]},
        {"main": [{**GRANT, "share_pct": 40, "limit_pct": 30}]},
        {"main": 6},
    ],
)
def test_a_damaged_decision_is_refused(containers: object) -> None:
    """A grant out of range, a GPU given twice, and a container without a GPU are refused by name."""
    text = json.dumps({"score": 1.0, "policy": "p", "time": "t", "containers": containers})
    with pytest.raises(InputError, match=r"plimsoll\.dev/decision.*; recreate the pod"):
        decision_of(bound({"gpu": 1}, decision=text))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"containers": 6}', "[" * 99_999])
def test_an_unreadable_decision_is_refused(text: str) -> None:
    """A text that is no JSON or no decision is refused by name."""
    with pytest.raises(InputError, match=r"plimsoll\.dev/decision.* is damaged .*; recreate the pod"):
        decision_of(bound({"gpu": 1}, decision=text))
