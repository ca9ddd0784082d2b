"""The placer's decision is read back as written, in today's form and in the first one, and refused if damaged."""

import json

import msgspec
import pytest

from plimsoll.decision import Decision, GpuGrant, annotations_of, decision_of
from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.kube.models import ObjectMeta, Pod
from plimsoll.lifespan import Lifespan, StartOrder, start_order
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from tests.plimsoll.bound import bound, first_form

MAIN, SIDE = ContainerName("main"), ContainerName("side")
A, B = GpuUuid("GPU-A"), GpuUuid("GPU-B")


def grants(pod: Pod, container: ContainerName = MAIN) -> tuple[GpuGrant, ...]:
    """The grants of a container by the pod's decision."""
    decision = decision_of(pod)
    assert decision is not None
    return decision.containers[container]


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
    pod = bound(
        {"gpu": 1}, gpus="GPU-B", best_effort="true", gpu_share_limit="lots", lines="{", decision=text
    )
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
    earlier = {"score": 1.0, "policy": "p", "time": "t", "containers": {"main": [GRANT]}}
    before = decision_of(bound({"gpu": 1}, decision=json.dumps({**earlier, "parts": {}, "resized": []})))
    assert before is not None
    assert before.start == StartOrder()


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


def test_the_first_form_gives_what_the_pod_declares_on_each_gpu() -> None:
    """8Gi and 60 percent over two GPUs are 4Gi and 30 percent on each, whatever lines the decision has."""
    pod = bound({"gpu-memory": "8Gi", "gpu-share": 60, "gpu": 2}, gpus="A,B", decision=first_form(A=1, B=1))
    assert [(one.gpu, one.memory_bytes, one.line_bytes, one.share_pct) for one in grants(pod)] == [
        ("A", 4 * GIB, 4 * GIB, 30),
        ("B", 4 * GIB, 4 * GIB, 30),
    ]


def test_resizes_of_the_first_form_stand_over_the_declaration() -> None:
    """A resized line holds on its GPU alone, and a resized share and limit on each GPU of the container."""
    asked: dict[str, str | int] = {"gpu-memory": "8Gi", "gpu-share": 60, "gpu": 2}
    lines = json.dumps({"main": {"A": 6 * GIB}, "other": {"B": 1}})
    shares = json.dumps({"main": {"share_pct": 40, "limit_pct": 80}})
    given = {"gpus": "A,B", "decision": first_form(), "gpu_share_limit": "50"}
    both = bound(asked, **given, lines=lines, shares=shares)
    assert [(one.line_bytes, one.share_pct, one.limit_pct) for one in grants(both)] == [
        (6 * GIB, 40, 80),
        (4 * GIB, 40, 80),
    ]
    decision = decision_of(both)
    assert decision is not None
    assert decision.resized == ("main", "other")
    of_another = bound(asked, **given, shares=json.dumps({"other": {"share_pct": 40, "limit_pct": 80}}))
    assert [(one.line_bytes, one.share_pct, one.limit_pct) for one in grants(of_another)] == [
        (4 * GIB, 30, 50)
    ] * 2


def test_best_effort_and_whole_pods_of_the_first_form_have_the_lines_of_their_decision() -> None:
    """Without a line in the decision the line is 0 and never a guess. A whole GPU stays its container's."""
    resizes = {
        "lines": json.dumps({"main": {"A": 1}}),
        "shares": json.dumps({"main": {"share_pct": 40, "limit_pct": 80}}),
    }
    for decision, line_bytes in ((first_form(A=5 * GIB), 5 * GIB), (first_form(B=5 * GIB), 0)):
        [loose] = grants(bound({"gpu": 1}, best_effort="true", gpus="A", decision=decision, **resizes))
        assert loose == GpuGrant(gpu=GpuUuid("A"), line_bytes=line_bytes, share_pct=40, limit_pct=80)
        [whole] = grants(bound({"gpu": 1}, gpus="A", decision=decision, **resizes))
        assert whole == GpuGrant(gpu=GpuUuid("A"), line_bytes=line_bytes, share_pct=100, whole=True)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"main": {"A": 0}}', '{"main": {"A": "6Gi"}}', '{"main": 6}', "[" * 99_999]
)
def test_damaged_lines_of_the_first_form_are_refused(text: str) -> None:
    """A line that is not a whole number of bytes above 0 is refused."""
    with pytest.raises(InputError, match=r"plimsoll\.dev/lines.* is damaged .*; recreate the pod"):
        decision_of(bound({"gpu-memory": "1Mi"}, gpus="A", decision=first_form(), lines=text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is damaged"),
        ('{"main": 40}', "is damaged"),
        ('{"main": {"share_pct": 40}}', "is damaged"),
        ('{"main": {"share_pct": -1, "limit_pct": 80}}', "is damaged"),
        ('{"main": {"share_pct": 0, "limit_pct": 0}}', "is damaged"),
        ('{"main": {"share_pct": 101, "limit_pct": 101}}', "is damaged"),
        ('{"main": {"share_pct": 40, "limit_pct": 30}}', "gives main a share above its limit of 30"),
    ],
)
def test_damaged_shares_of_the_first_form_are_refused(text: str, said: str) -> None:
    """A percentage out of range, a share above its limit, and a share or limit alone are refused."""
    with pytest.raises(InputError, match=rf"plimsoll\.dev/.* {said}.*; recreate the pod"):
        decision_of(bound({"gpu-memory": "1Mi"}, gpus="A", decision=first_form(), shares=text))


@pytest.mark.parametrize("asked", [{"gpu": 2, "gpu-memory": "2Mi"}, {}])
def test_gpus_of_the_first_form_that_do_not_match_the_demand_are_refused(asked: dict[str, str | int]) -> None:
    """A number of GPUs other than the container's is refused by the annotation that names them."""
    with pytest.raises(InputError, match=r"annotations\[gpus.plimsoll.dev/main\]"):
        decision_of(bound(asked, gpus="A", decision=first_form()))
