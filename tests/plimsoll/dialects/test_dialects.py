"""Requests of other schedulers become ours, with nothing lost unseen; what has no counterpart is refused by name."""

import copy
from collections.abc import Mapping

import msgspec
import pytest

from plimsoll.demand import PodDemand, parse_pod
from plimsoll.dialects import Dialect, Json, Translation, translated
from plimsoll.dialects.gpushare import Gpushare
from plimsoll.dialects.hami import Hami
from plimsoll.dialects.kai import Kai
from plimsoll.kube.models import decode_pod
from plimsoll.part.errors import InputError

ALL: tuple[Dialect, ...] = (Hami(), Gpushare(), Kai())
MIB, GIB = 1 << 20, 1 << 30


def pod(
    *limits: Mapping[str, object] | None,
    annotations: Mapping[str, str] | None = None,
    scheduler: str = "other",
) -> Json:
    """A pod of containers `c0`, `c1`, … with these limits."""
    containers = [
        {"name": f"c{at}", **({} if one is None else {"resources": {"limits": dict(one)}})}
        for at, one in enumerate(limits)
    ]
    metadata: Json = {"name": "p", "annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": {"schedulerName": scheduler, "containers": containers}}


def ours(given: Json, *dialects: Dialect) -> Translation:
    """The translation, after it left the given pod as it was, and has nothing more to translate."""
    before = copy.deepcopy(given)
    found = translated(given, dialects or ALL)
    assert given == before
    assert translated(found.pod, dialects or ALL).pod is found.pod
    return found


def demand(given: Json) -> PodDemand:
    """The contract's reading of a pod."""
    return parse_pod(decode_pod(msgspec.json.encode(given)))


def test_hami_memory_and_cores_are_per_gpu() -> None:
    """3000 MiB and 30 % of each of two GPUs are 6000 MiB and 60 % in total."""
    given = pod({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30, "cpu": 1}, None)
    found = ours(given)
    [asked] = demand(found.pod).containers
    assert (asked.gpus, asked.memory_bytes, asked.share_pct) == (2, 3000 * MIB, 30)
    assert found.pod["spec"]["containers"][0]["resources"] == {
        "limits": {
            "cpu": 1,
            "plimsoll.dev/gpu": "2",
            "plimsoll.dev/gpu-memory": "6000Mi",
            "plimsoll.dev/gpu-share": "60",
        }
    }
    theirs = "nvidia.com/gpu: 2, nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30"
    ours_now = "plimsoll.dev/gpu: 2, plimsoll.dev/gpu-memory: 6000Mi, plimsoll.dev/gpu-share: 60"
    assert found.changes == (
        f"spec.containers[c0].resources: {theirs} became {ours_now}",
        "spec.schedulerName: other became plimsoll",
    )


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"nvidia.com/gpumem": 100}, (1, 100 * MIB, 0, False)),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1k"}, (1, 1000 * MIB, 0, False)),
        ({"nvidia.com/gpumem": 100, "nvidia.com/gpumem-percentage": 50}, (1, 100 * MIB, 0, False)),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpucores": 100}, (2, None, 0, True)),
        ({"nvidia.com/gpumem-percentage": 100, "nvidia.com/gpucores": 100}, (1, None, 0, True)),
    ],
)
def test_hami_defaults(limits: dict[str, object], expected: tuple[int, int | None, int, bool]) -> None:
    """One GPU if none is counted; bytes before a percentage; all of memory and cores is a whole GPU."""
    [asked] = demand(ours(pod(limits)).pod).containers
    assert (asked.gpus, asked.memory_bytes, asked.share_pct, asked.whole) == expected


def test_hami_percentages_become_the_annotation() -> None:
    """A percentage of memory is a pod's annotation; without any memory, HAMi gives all of it."""
    for limits, percent in (
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 30}, "30"),
        ({"nvidia.com/gpucores": 40}, "100"),
    ):
        found = ours(pod(limits)).pod
        assert found["metadata"]["annotations"] == {"plimsoll.dev/gpu-memory-percent": percent}
        assert "plimsoll.dev/gpu" in found["spec"]["containers"][0]["resources"]["limits"]
    two = pod({"nvidia.com/gpumem-percentage": 30}, {"nvidia.com/gpumem-percentage": 40})
    with pytest.raises(InputError, match=r"spec.containers\[c1\].*'40' differs from spec.containers\[c0\]"):
        ours(two)
    with pytest.raises(InputError, match=r"spec.containers\[c1\].*'all memory' differs from"):
        ours(pod({"nvidia.com/gpumem-percentage": 30}, {"nvidia.com/gpucores": 40}))


@pytest.mark.parametrize(
    "given", [pod({"nvidia.com/gpumem-percentage": 30}), pod(None, annotations={"gpu-fraction": "0.3"})]
)
def test_the_contract_reads_percentages(given: Json) -> None:
    """A translated percentage is a demand for one GPU, shared with others."""
    [asked] = demand(ours(given).pod).containers
    assert (asked.gpus, asked.whole) == (1, False)


def test_hami_is_left_alone_where_it_is_the_device_plugins() -> None:
    """`nvidia.com/gpu` alone, and a pod without GPUs, are not HAMi's way."""
    for given in (pod({"nvidia.com/gpu": 1}), pod({"cpu": 1}), pod({"nvidia.com/gpumem": 0})):
        assert ours(given).pod is given


def test_hami_rules_without_counterpart_are_refused() -> None:
    """A pod that restricts its GPUs is never placed as if it had not."""
    given = pod({"nvidia.com/gpumem": 1}, annotations={"nvidia.com/use-gputype": "A100"})
    with pytest.raises(
        InputError, match=r"use-gputype.*'A100' is HAMi's and is not translated; name whole models"
    ):
        ours(given)
    found = ours(pod({"nvidia.com/gpumem": 1, "nvidia.com/priority": 1}))
    assert (
        "spec.containers[c0].resources[nvidia.com/priority]: has no counterpart and was removed"
        in found.changes
    )
    with pytest.raises(InputError, match="more than one GPU has"):
        ours(pod({"nvidia.com/gpucores": 101}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("10G", "has a unit, and the amount is in .iB already; write a number alone"),
        ("3000Mi", "has a unit"),
        ("9223372036854775807", "than any GPU has"),
        ("1e9", "than any GPU has"),
        ("0.5", "is not a whole number"),
        ("500m", "is not a whole number"),
        ("-1", "is negative"),
        ("2000mb", "is not a quantity"),
        ("true", "is not a quantity"),
    ],
)
def test_an_amount_counts_once(value: str, message: str) -> None:
    """Each dialect has a unit of its own, so an amount with another one is refused in all of them."""
    for given in (
        pod({"nvidia.com/gpumem": value}),
        pod({"aliyun.com/gpu-mem": value}),
        pod(None, annotations={"gpu-memory": value}),
    ):
        with pytest.raises(InputError, match=message):
            ours(given)


@pytest.mark.parametrize("value", ["1k", "1e3", "1000"])
def test_thousands_as_the_api_server_writes_them(value: str) -> None:
    """`k` is no unit: the API server stores 1000 so."""
    [asked] = demand(ours(pod({"nvidia.com/gpumem": value})).pod).containers
    assert asked.memory_bytes == 1000 * MIB


@pytest.mark.parametrize(
    "left",
    [
        {"nvidia.com/gpualloc": 2},
        {"nvidia.com/vgpu-cores": 50},
        {"volcano.sh/vgpu-number": 1},
        {"aliyun.com/gpu-count": 1},
        {"tencent.com/vcuda-core": 10},
    ],
)
def test_nothing_of_another_scheduler_is_left_over(left: dict[str, object]) -> None:
    """A renamed or unknown resource, in the same container or in another, is refused by name."""
    for given in (pod({"nvidia.com/gpumem": 1, **left}), pod({"nvidia.com/gpumem": 1}, left)):
        with pytest.raises(InputError, match=rf"resources\[{next(iter(left))}\].* is not translated"):
            ours(given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": {"schedulerName": "volcano"}}, "spec.schedulerName: 'volcano' asks for a gang"),
        (
            {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "g"}}},
            r"annotations\[scheduling.k8s.io/group-name\]: 'g' asks for a gang",
        ),
        (
            {"spec": {"resourceClaims": [{"name": "c"}]}},
            r"spec.resourceClaims: '1 claim\(s\)' is not handled",
        ),
    ],
)
def test_what_the_placer_would_lose_or_refuse_is_refused(change: Mapping[str, Json], message: str) -> None:
    """A gang is never placed as if it were none, and a claim is named before the placer refuses it."""
    given = pod({"nvidia.com/gpumem": 1})
    for part, fields in change.items():
        given[part] |= fields
    with pytest.raises(InputError, match=message):
        ours(given)


def test_hami_variables_without_effect_are_named() -> None:
    """A variable that turned HAMi's library off has no effect here, and the changes say so."""
    given = pod({"nvidia.com/gpumem": 1})
    given["spec"]["containers"][0]["env"] = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]
    [told] = [one for one in ours(given).changes if "CUDA_DISABLE_CONTROL" in one]
    assert told == "spec.containers[c0].env[CUDA_DISABLE_CONTROL]: is HAMi's, stays, and has no effect"


def test_hami_counts_gpus_in_each_container_of_its_pods() -> None:
    """A container that counts whole GPUs, beside one with memory or of HAMi's scheduler, is no device plugin's."""
    found = ours(pod({"nvidia.com/gpumem": 5}, {"nvidia.com/gpu": 2}))
    assert [(one.gpus, one.whole) for one in demand(found.pod).containers] == [(1, False), (2, True)]
    found = ours(pod({"nvidia.com/gpu": 2}, scheduler="hami-scheduler"))
    assert [(one.gpus, one.whole) for one in demand(found.pod).containers] == [(2, True)]
    for other in ({"nvidia.com/gpu": 1}, {"nvidia.com/gpumem": 7}):
        with pytest.raises(InputError, match="one percentage for all its containers"):
            ours(pod({"nvidia.com/gpumem-percentage": 30}, other))


@pytest.mark.parametrize(("unit", "size"), [("GiB", GIB), ("MiB", MIB)])
def test_gpushare_memory(unit: str, size: int) -> None:
    """Its memory is in the unit of its device plugin, per container, in requests as in limits."""
    given = pod({"aliyun.com/gpu-mem": 3}, {"aliyun.com/gpu-mem": "2"})
    given["spec"]["containers"][0]["resources"]["requests"] = {"aliyun.com/gpu-mem": 3}
    found = ours(given, Gpushare(unit))  # type: ignore[arg-type] # one of the two
    assert [one.memory_bytes for one in demand(found.pod).containers] == [3 * size, 2 * size]
    assert "aliyun" not in str(found.pod)


def test_gpushare_counts_are_refused() -> None:
    """Its other resources have no counterpart."""
    with pytest.raises(InputError, match=r"aliyun.com/gpu-count\].*is not translated"):
        ours(pod({"aliyun.com/gpu-mem": 3, "aliyun.com/gpu-count": 2}))


def test_kai_memory_is_per_gpu() -> None:
    """2000 MiB on each of two GPUs, of the named container."""
    annotations = {
        "gpu-memory": "2000",
        "gpu-fraction-num-devices": "2",
        "gpu-fraction-container-name": "c1",
        "mine": "x",
    }
    found = ours(pod(None, {"cpu": 1}, annotations=annotations, scheduler="kai-scheduler"))
    [asked] = demand(found.pod).containers
    assert (asked.container, asked.gpus, asked.memory_bytes) == ("c1", 2, 2000 * MIB)
    assert found.pod["metadata"]["annotations"] == {"mine": "x"}
    assert found.pod["spec"]["schedulerName"] == "plimsoll"


@pytest.mark.parametrize(
    ("fraction", "percent"), [("0.5", "50"), ("0.999", "99"), (".01", "1"), ("25e-2", "25")]
)
def test_kai_fractions_become_percentages(fraction: str, percent: str) -> None:
    """A fraction is a part of each GPU's memory, of the first container; parts of a percent are left out."""
    found = ours(pod(None, None, annotations={"gpu-fraction": fraction})).pod
    assert found["metadata"]["annotations"] == {"plimsoll.dev/gpu-memory-percent": percent}
    assert found["spec"]["containers"][0]["resources"]["limits"] == {"plimsoll.dev/gpu": "1"}
    assert "resources" not in found["spec"]["containers"][1]


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"gpu-fraction": "1.0"}, r"gpu-fraction\]: '1.0' is no fraction of a GPU; give 0.01 to 0.99"),
        ({"gpu-fraction": "NaN"}, "is not a quantity"),
        ({"gpu-fraction": "0.5", "gpu-memory": "1"}, "keep one of the two"),
        ({"gpu-memory": "0"}, "asks for nothing"),
        (
            {"gpu-memory": "1", "gpu-fraction-container-name": "x"},
            "is no container of the pod; name one of c0",
        ),
        ({"gpu-memory": "1", "gpu-memory.limit": "2"}, r"gpu-memory.limit\].*is KAI's and is not translated"),
    ],
)
def test_what_kai_means_otherwise_is_refused(annotations: dict[str, str], message: str) -> None:
    """Malformed values, and burst limits, which Plimsoll does not have."""
    with pytest.raises(InputError, match=message):
        ours(pod(None, annotations=annotations))


def test_two_ways_at_once_are_refused() -> None:
    """A pod in two dialects, or in one and ours, has no single meaning."""
    both = pod({"nvidia.com/gpumem": 1}, annotations={"gpu-fraction": "0.5"})
    with pytest.raises(InputError, match=r"asks for GPUs in the way of KAI, beside .* of HAMi"):
        ours(both)
    mixed = pod({"nvidia.com/gpumem": 1, "plimsoll.dev/gpu": 1})
    with pytest.raises(
        InputError, match=r"plimsoll.dev/gpu\].*stands beside a request in another scheduler's way"
    ):
        ours(mixed)


def test_an_extended_scheduler_keeps_its_pods() -> None:
    """Where the placer is an extender to a scheduler, a translated pod stays there."""
    found = translated(pod({"nvidia.com/gpumem": 1}), ALL, ("other",))
    assert found.pod["spec"]["schedulerName"] == "other"
    assert len(found.changes) == 1
