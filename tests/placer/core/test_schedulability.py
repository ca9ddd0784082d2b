"""The schedulability of a node, by its object."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from placer.core.pool import Pool
from placer.core.schedulability import Schedulability, schedulability_of
from placer.core.view import node_view
from plimsoll.contract import OPT_OUT_LABEL
from plimsoll.cordons import MOST_REASON_CHARACTERS, PAUSED, pause_of
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.kube.models import Node
from tests.placer.core.worlds import gpu, state

NOT_READY = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
UUID = "GPU-a1000000-0000-4000-8000-00000000000f"
TAINTS = [
    {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    {"key": "drained", "effect": "NoExecute"},
    {"key": "slow", "effect": "PreferNoSchedule"},
    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
]


@pytest.mark.parametrize(
    ("document", "schedulability"),
    [
        ({}, Schedulability()),
        ({"metadata": {"labels": {OPT_OUT_LABEL: "off"}}}, Schedulability(("off",))),
        ({"metadata": {"labels": {OPT_OUT_LABEL: "on"}}}, Schedulability()),
        ({"metadata": {"labels": {OPT_OUT_LABEL: "On"}}}, Schedulability()),
        *(
            (
                {"metadata": {"labels": {OPT_OUT_LABEL: word}}},
                Schedulability((f"off by the label {OPT_OUT_LABEL}={word}, whose words are off and on",)),
            )
            for word in ("OFF", "Off", "false", "no", "true", "")
        ),
        ({"spec": {"unschedulable": True}}, Schedulability(("cordoned",))),
        ({"spec": {"unschedulable": True}, "status": NOT_READY}, Schedulability(("cordoned", "not ready"))),
        (
            {"spec": {"taints": TAINTS}},
            Schedulability(taints=("dedicated=ml:NoSchedule", "drained:NoExecute")),
        ),
        (
            {"metadata": {"annotations": {"plimsoll.dev/cordoned-gpus": " GPU-a,,MIG-b , "}}},
            Schedulability(cordoned=frozenset(("GPU-a", "MIG-b"))),
        ),
        (
            {
                "metadata": {
                    "annotations": {"plimsoll.dev/cordoned-gpus": f"{UUID.upper()}, gpu{UUID[3:]},n1/0"}
                }
            },
            Schedulability(cordoned=frozenset((UUID, "n1/0"))),
        ),
    ],
)
def test_a_node_says_what_keeps_pods_away(
    document: Mapping[str, Any], schedulability: Schedulability
) -> None:
    """Each state of its object has a word; a taint that Kubernetes sets beside a field says nothing more."""
    found = schedulability_of(msgspec.convert(document, Node))
    assert found == schedulability


def test_a_cordon_without_its_gpu_is_stale() -> None:
    """A card that was replaced, and an index in place of a UUID, are named; a card of instances is no stale one."""
    schedulability = Schedulability(cordoned=frozenset(("GPU-old", "0", "GPU-here")))
    assert schedulability.stale_cordons(state("n", gpu("GPU-here"))) == ("0", "GPU-old")


@pytest.mark.parametrize(
    ("cordoned", "left"),
    [("GPU-a", ["MIG-1", "MIG-2"]), ("MIG-1", ["GPU-a", "MIG-2"]), ("GPU-card", ["GPU-a"]), ("GPU-", None)],
)
def test_a_cordoned_gpu_is_seen_as_one_with_a_fault(cordoned: str, left: list[str] | None) -> None:
    """A card takes its instances with it, an instance no other one; a UUID of no GPU closes nothing."""
    parts = [replace(gpu(uuid), mig_parent=GpuUuid("GPU-card")) for uuid in ("MIG-1", "MIG-2")]
    reported, pool = node_view(state("n", gpu("GPU-a"), *parts)), Pool()
    changed: list[NodeName] = []
    pool.on_change(changed.append)
    assert pool.seen(reported) is reported
    pool.put_schedulability(NodeName("n"), Schedulability(cordoned=frozenset((cordoned,))))
    seen = pool.seen(reported)
    assert seen is not None
    assert pool.seen(reported) is seen
    assert [one.uuid for one in seen.gpus] == (left or ["GPU-a", "MIG-1", "MIG-2"])
    assert {one.gpu for one in seen.faults} == {one.uuid for one in reported.gpus} - {
        one.uuid for one in seen.gpus
    }
    pool.put_schedulability(NodeName("n"), None)
    assert pool.seen(reported) is reported
    assert changed == ["n", "n"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, None),
        ("false", None),
        (" FALSE\n", None),
        ("", ""),
        ("true", "true"),
        ("new\ncards  come", "new cards come"),
        ("x" * 300, "x" * MOST_REASON_CHARACTERS),
    ],
)
def test_a_pause_has_a_reason_of_one_line(value: str | None, reason: str | None) -> None:
    """Any value but `false`, in any case, pauses; a long reason is cut, as each waiting pod shows it."""
    assert pause_of(None if value is None else {PAUSED: value}) == reason
