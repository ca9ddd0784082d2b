"""A pod's declaration is read, or a bad one is refused."""

import pytest

from plimsoll.contract import assigned_gpus
from plimsoll.decision import decision_of
from plimsoll.demand import MOST_INIT_CONTAINERS, ContainerDemand, PodDemand, parse_pod
from plimsoll.kube.models import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from plimsoll.lifespan import MAIN, Lifespan
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB

Amount = str | int


def pod(annotations: dict[str, str] | None = None, **containers: dict[str, Amount]) -> Pod:
    """A pod whose containers have these limits in Plimsoll's domain."""
    made = [
        Container(
            name=name,
            resources=ResourceRequirements(limits={f"plimsoll.dev/{k}": v for k, v in asked.items()}),
        )
        for name, asked in containers.items()
    ]
    prefixed = {
        name if "/" in name else f"plimsoll.dev/{name}": value for name, value in (annotations or {}).items()
    }
    return Pod(metadata=ObjectMeta(name="p", annotations=prefixed), spec=PodSpec(containers=made))


def only(demand: PodDemand) -> ContainerDemand:
    """The demand of the pod's only container."""
    assert len(demand.containers) == 1
    return demand.containers[0]


def test_memory_alone_is_one_shared_gpu() -> None:
    """The count is filled in as 1 and the share as 0."""
    assert only(parse_pod(pod(main={"gpu-memory": "4Gi"}))) == ContainerDemand(
        container="main",  # type: ignore[arg-type]
        gpus=1,
        memory_bytes=4 * GIB,
        share_pct=0,
        limit_pct=100,
        whole=False,
    )


def test_totals_are_split_evenly_over_the_gpus() -> None:
    """60 percent and 8Gi over two GPUs are 30 percent and 4Gi on each."""
    demand = only(parse_pod(pod(main={"gpu-memory": "8Gi", "gpu-share": 60, "gpu": 2})))
    assert (demand.memory_bytes, demand.share_pct, demand.gpus) == (4 * GIB, 30, 2)


def test_a_count_alone_asks_for_whole_gpus() -> None:
    """A count without memory and share requests whole GPUs."""
    assert only(parse_pod(pod(main={"gpu": 2}))).whole


def test_a_limit_is_for_those_who_share() -> None:
    """A limit counts for a container that shares its GPU; one with whole GPUs has none."""
    asked = {"owner": {"gpu": 1}, "sharer": {"gpu-share": 20}}
    owner, sharer = parse_pod(pod({"gpu-share-limit": "50"}, **asked)).containers  # type: ignore[arg-type]
    assert (owner.whole, owner.limit_pct, sharer.limit_pct) == (True, 100, 50)


def test_a_share_without_memory_is_best_effort() -> None:
    """A best-effort container declares no memory, so measured headroom places it."""
    demand = only(parse_pod(pod(main={"gpu-share": 30})))
    assert demand.best_effort
    assert demand.memory_bytes is None


def test_best_effort_shares_its_gpu() -> None:
    """The annotation turns a bare count into a shared GPU."""
    assert only(parse_pod(pod({"best-effort": "true"}, main={"gpu": 1}))).best_effort


def test_containers_without_gpu_demand_nothing() -> None:
    """A sidecar that requests no GPU is not in the demand."""
    assert [c.container for c in parse_pod(pod(main={"gpu-memory": "1Gi"}, sidecar={})).containers] == [
        "main"
    ]


def test_wishes_are_read() -> None:
    """GPU identity, models and policy come from annotations."""
    asked = {
        "gpu-id": "GPU-1",
        "gpu-model": "NVIDIA L4, NVIDIA T4",
        "policy": "headroom",
        "gpu-share-limit": "50",
    }
    demand = parse_pod(pod(asked, main={"gpu-memory": "1Gi", "gpu-share": 20}))
    assert (demand.gpu_id, demand.gpu_models, demand.policy) == (
        "GPU-1",
        ("NVIDIA L4", "NVIDIA T4"),
        "headroom",
    )
    assert only(demand).limit_pct == 50


@pytest.mark.parametrize(
    ("annotations", "resources", "field", "remedy"),
    [
        ({}, {"gpu-memory": "-1"}, "gpu-memory", "give 0 or more bytes"),
        ({}, {"gpu-memory": "4Gb"}, "gpu-memory", "write a number"),
        ({}, {"gpu-memory": "1.5"}, "gpu-memory", "give whole bytes"),
        ({}, {"gpu-share": 101}, "gpu-share", "give at most 100"),
        ({}, {"gpu-share": 61, "gpu": 2}, "gpu-share", "give a multiple of 2"),
        ({}, {"gpu-memory": "1Gi", "gpu": 3}, "gpu-memory", "give a multiple of 3"),
        ({}, {"gpu": 0}, "gpu]", "give 1 or more"),
        ({}, {"gpu-memory": 0}, "gpu-memory", "give 1 or more"),
        ({}, {"gpu-memory": 0, "gpu-share": 10}, "gpu-memory", "a share alone is best effort"),
        ({}, {"gpu": 1, "gpu-memory": "0"}, "gpu-memory", "GPUs alone are whole"),
        (
            {"best-effort": "false"},
            {"gpu-share": 10},
            "best-effort",
            "declare plimsoll.dev/gpu-memory, or leave",
        ),
        ({}, {"gpu-mem": "1Gi"}, "gpu-mem", "did you mean plimsoll.dev/gpu-memory?"),
        ({"gpu-share-limit": "0"}, {"gpu": 1}, "gpu-share-limit", "give 1 to 100"),
        ({"gpu-share-limit": "20"}, {"gpu-share": 30}, "gpu-share", "lower it to 20"),
        ({}, {"gpu-share": "30%"}, "gpu-share", "write a number alone, in percent"),
        ({}, {"gpu": 1, "gpu-share-limit": 60}, "gpu-share-limit", "give it in metadata.annotations"),
        ({"gpu-share": "30"}, {"gpu": 1}, "gpu-share", "give it in the container's resources.limits"),
        ({"gpu-share-limit": "60"}, {"gpu": 1}, "gpu-share-limit", "leave it out, or declare"),
        ({"best-effort": "yes"}, {"gpu": 1}, "best-effort", 'write "true" or "false"'),
        ({"cpu-affinity": "near"}, {"gpu": 1}, "cpu-affinity", 'write "true" or "false"'),
        ({"relocation-cost": "-1"}, {"gpu": 1}, "relocation-cost", 'give "0" to "999999"'),
        ({"relocation-cost": "cheap"}, {"gpu": 1}, "relocation-cost", "must not be moved"),
        ({"relocation-cost": ""}, {"gpu": 1}, "relocation-cost", "leave the annotation out"),
        ({"relocation-cost": "1"}, {}, "relocation-cost", "request plimsoll.dev/gpu"),
        ({"best-effort": "true"}, {"gpu-memory": "1Gi"}, "gpu-memory", "leave out"),
        ({"gpumodel": "L4"}, {"gpu": 1}, "gpumodel", "did you mean plimsoll.dev/gpu-model?"),
        ({"gpu-id": " "}, {"gpu": 1}, "gpu-id", "give a value"),
        ({"gpu-model": ""}, {"gpu": 1}, "gpu-model", "give a value"),
        ({"gpu-model": ","}, {"gpu": 1}, "gpu-model", "give a value"),
        ({"gpu-model": " , ,"}, {"gpu": 1}, "gpu-model", "give a value"),
        ({"policy": "headroom"}, {}, "policy", "request plimsoll.dev/gpu"),
        ({"gpu-memory-percent": "50"}, {}, "gpu-memory-percent", "request plimsoll.dev/gpu"),
        ({"gpu-memory-percent": "0"}, {"gpu": 1}, "gpu-memory-percent", "give 1 to 100"),
        ({"gpu-memory-percent": "101"}, {"gpu": 1}, "gpu-memory-percent", "give 1 to 100"),
        ({"gpu-memory-percent": "0.5"}, {"gpu": 1}, "gpu-memory-percent", "give whole percent"),
        ({"gpu-memory-percent": "50%"}, {"gpu": 1}, "gpu-memory-percent", "in percent"),
        ({"gpu-memory-percent": ""}, {"gpu": 1}, "gpu-memory-percent", "in percent"),
        (
            {"gpu-memory-percent": "50"},
            {"gpu-memory": "1Gi"},
            "containers[main].resources[plimsoll.dev/gpu-memory]",
            "leave out plimsoll.dev/gpu-memory, or the annotation plimsoll.dev/gpu-memory-percent",
        ),
        (
            {"gpu-memory-percent": "50", "best-effort": "true"},
            {"gpu": 1},
            "gpu-memory-percent",
            "or the annotation plimsoll.dev/best-effort",
        ),
        ({}, {"gpu-memory-percent": 50}, "gpu-memory-percent", "give it in metadata.annotations"),
        ({"gpu-mem-percent": "50"}, {"gpu": 1}, "gpu-mem-percent", "did you mean"),
    ],
)
def test_what_cannot_work_is_refused_with_field_and_remedy(
    annotations: dict[str, str], resources: dict[str, Amount], field: str, remedy: str
) -> None:
    """Every refusal names the field, the value, and the remedy."""
    with pytest.raises(InputError) as refused:
        parse_pod(pod(annotations, main=resources))
    assert field in refused.value.field
    assert remedy in refused.value.remedy
    assert repr(refused.value.value) in str(refused.value)


def test_a_request_unlike_its_limit_is_refused() -> None:
    """A request must equal its limit, as extended resources cannot be overcommitted within a container."""
    resources = ResourceRequirements(requests={"plimsoll.dev/gpu": 1}, limits={"plimsoll.dev/gpu": 2})
    with pytest.raises(InputError, match="differs from the limit 2"):
        parse_pod(Pod(spec=PodSpec(containers=[Container(name="main", resources=resources)])))


@pytest.mark.parametrize(
    ("resources", "gpus", "share_pct"),
    [
        ({"gpu": 1}, 1, 0),
        ({"gpu": 2}, 2, 0),
        ({"gpu-share": 30}, 1, 30),
        ({"gpu": 2, "gpu-share": 60}, 2, 30),
    ],
)
def test_a_percentage_declares_memory_of_each_gpu(
    resources: dict[str, Amount], gpus: int, share_pct: int
) -> None:
    """The annotation holds for each GPU of each container, so a bare count is no whole GPU then, nor best effort."""
    demand = only(parse_pod(pod({"gpu-memory-percent": "25"}, main=resources)))
    assert (demand.gpus, demand.share_pct) == (gpus, share_pct)
    assert (demand.memory_pct, demand.memory_bytes) == (25, None)
    assert not demand.whole
    assert not demand.best_effort


def test_a_percentage_becomes_bytes_on_a_gpu() -> None:
    """On a GPU, a percentage of its usable bytes stands in the demand, and other demands are as they were."""
    demand = only(parse_pod(pod({"gpu-memory-percent": "25"}, main={"gpu": 1})))
    there = demand.on(24 * GIB)
    assert (there.memory_bytes, there.memory_pct) == (6 * GIB, None)
    declared = only(parse_pod(pod(main={"gpu-memory": "4Gi"})))
    assert declared.on(24 * GIB) is declared


def test_a_percentage_is_for_all_containers_with_a_gpu() -> None:
    """Each container that asks for a GPU has the percentage, and the others have nothing."""
    asked: dict[str, dict[str, Amount]] = {"a": {"gpu": 1}, "b": {"gpu-share": 20}, "c": {}}
    demand = parse_pod(pod({"gpu-memory-percent": "25"}, **asked))
    assert [(one.container, one.memory_pct) for one in demand.containers] == [("a", 25), ("b", 25)]
    with pytest.raises(InputError, match=r"containers\[b\].*gpu-memory\]: '1Gi' stands beside the pod's"):
        parse_pod(pod({"gpu-memory-percent": "25"}, a={"gpu": 1}, b={"gpu-memory": "1Gi"}))


def starting(*containers: tuple[str, dict[str, Amount], str | None]) -> list[Container]:
    """Init containers: name, limits and restart policy of each."""
    return [
        Container(
            name=name,
            restartPolicy=policy,
            resources=ResourceRequirements(limits={f"plimsoll.dev/{k}": v for k, v in asked.items()}),
        )
        for name, asked, policy in containers
    ]


def with_init(given: Pod, *containers: tuple[str, dict[str, Amount], str | None]) -> Pod:
    """The pod with these init containers."""
    spec = PodSpec(containers=given.spec.containers, initContainers=starting(*containers))
    return Pod(metadata=given.metadata, spec=spec)


def test_init_containers_and_sidecars_ask_like_containers() -> None:
    """Each init container with a GPU has its place in the order of beginnings, and a sidecar is one that runs on."""
    asked = with_init(
        pod({"gpu-share-limit": "80"}, main={"gpu-memory": "4Gi"}),
        ("plain", {}, None),
        ("warm", {"gpu-memory": "8Gi", "gpu-share": 60}, None),
        ("proxy", {"gpu-share": 10}, "Always"),
        ("check", {"gpu": 1}, "OnFailure"),
    )
    demand = parse_pod(asked)
    assert [(one.container, one.lifespan) for one in demand.containers] == [
        ("warm", Lifespan(0)),
        ("proxy", Lifespan(1, sidecar=True)),
        ("check", Lifespan(2)),
        ("main", MAIN),
    ]
    warm, proxy, check, _ = demand.containers
    assert (warm.memory_bytes, warm.share_pct, warm.limit_pct) == (8 * GIB, 60, 80)
    assert proxy.best_effort
    assert check.whole


def test_an_init_container_alone_may_ask() -> None:
    """A pod whose containers need no GPU may warm up on one."""
    demand = parse_pod(with_init(pod(main={}), ("warm", {"gpu-memory": "1Gi"}, None)))
    assert [one.container for one in demand.containers] == ["warm"]


def test_a_container_asks_one_scheduler_for_its_gpus() -> None:
    """A container that gets a device of NVIDIA's plugin as well would see only one of them; other containers may."""
    both = pod(main={"gpu-memory": "1Gi"})
    asked = both.spec.containers[0].resources
    assert asked is not None
    limits = asked.limits
    assert limits is not None
    limits["nvidia.com/gpu"] = "0"
    parse_pod(both)
    limits["nvidia.com/gpu"] = "1"
    with pytest.raises(
        InputError, match=r"main.*nvidia.com/gpu\]: '1' asks NVIDIA's device plugin .* ask in one way"
    ):
        parse_pod(both)


@pytest.mark.parametrize(
    ("annotations", "asked", "text"),
    [
        ({}, {"gpu-share": 101}, r"gpu-share\]: '101' is more than 1 GPU"),
        ({}, {"gpu-mem": 1}, r"gpu-mem\]: 1 is no resource of Plimsoll"),
        ({}, {"gpu": 0}, r"gpu\]: '0' asks for nothing"),
        ({"gpu-memory-percent": "5"}, {"gpu-memory": "1Gi"}, r"gpu-memory\]: '1Gi' stands beside"),
        ({"best-effort": "true"}, {"gpu-memory": "1Gi"}, r"gpu-memory\]: '1Gi' on a best-effort pod"),
    ],
)
def test_a_bad_init_container_is_refused_by_its_own_field(
    annotations: dict[str, str], asked: dict[str, Amount], text: str
) -> None:
    """The refusal names the field among the init containers."""
    with pytest.raises(InputError, match=r"^spec\.initContainers\[warm\]\.resources\[plimsoll.dev/" + text):
        parse_pod(with_init(pod(annotations, main={"gpu": 1}), ("warm", asked, None)))


def test_a_crowd_of_init_containers_is_refused() -> None:
    """More init containers with a GPU than a decision can hold are refused by name."""
    many: list[tuple[str, dict[str, Amount], str | None]] = [
        (f"i{index}", {"gpu-share": 1}, None) for index in range(MOST_INIT_CONTAINERS + 1)
    ]
    parse_pod(with_init(pod(main={}), *many[1:]))
    with pytest.raises(
        InputError, match=rf"initContainers\[i{MOST_INIT_CONTAINERS}\].* more than {MOST_INIT_CONTAINERS}"
    ):
        parse_pod(with_init(pod(main={}), *many))


def test_the_placers_answer_is_read_back() -> None:
    """The GPUs of each container are read from one annotation each."""
    answered = pod({"gpus.plimsoll.dev/main": "GPU-1,GPU-2", "gpus.plimsoll.dev/other": "GPU-3"})
    assert assigned_gpus(answered) == {"main": ("GPU-1", "GPU-2"), "other": ("GPU-3",)}


@pytest.mark.parametrize(
    "text", ["", "{}", '{"score":1,"policy":"p","time":"t","x":' + "[" * 100_000 + "]" * 100_000 + "}"]
)
def test_a_damaged_decision_is_refused(text: str) -> None:
    """A damaged decision, which a pod's author may have written, gives one short error for that pod."""
    with pytest.raises(InputError, match=r"plimsoll\.dev/decision.* is damaged .*; recreate") as refused:
        decision_of(pod({"decision": text}, main={"gpu": 1}))
    assert len(str(refused.value)) < 500
