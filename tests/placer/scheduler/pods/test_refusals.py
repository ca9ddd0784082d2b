"""A pod that uses a feature which this scheduler lacks, or that is too long to be read, is refused by name."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from placer.core.policies import POLICIES
from placer.scheduler.pods.refusals import (
    MOST_BYTES,
    MOST_CLAIMS,
    PLACELESS_VOLUMES,
    TIED_VOLUMES,
    refuse_unhandled,
)
from placer.scheduler.profile import understood
from plimsoll.contract import MOST_ANNOTATION_BYTES, MOST_CHARACTERS
from plimsoll.kube.models import Pod, decode_pod
from plimsoll.part.errors import InputError

REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone"}
STRICT = SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}


def pod(**spec: object) -> Pod:
    """A pod with these fields in its spec."""
    document: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]} | spec}
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"topologySpreadConstraints": [SPREAD]}, r"spec\.topologySpreadConstraints: 'zone'"),
        (
            {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "New"}]},
            r"spec\.topologySpreadConstraints: 'zone'",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, r"spec\.resourceClaims"),
        (
            {"containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]},
            r"spec\.containers\[main\]\.resources\.claims",
        ),
        (
            {"volumes": [{"name": "data", "awsElasticBlockStore": {"volumeID": "v"}}]},
            r"spec\.volumes\[data\]: 'awsElasticBlockStore'",
        ),
        (
            {"volumes": [{"name": f"v{number}", "ephemeral": {}} for number in range(MOST_CLAIMS + 1)]},
            r"spec\.volumes: '257 claims'",
        ),
        (
            {
                "containers": [
                    {"name": "main", "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}
                ]
            },
            r"spec\.containers\[main\]\.resources: 'deviceclass\.resource\.kubernetes\.io/gpu'",
        ),
        ({"volumes": [{"name": "new", "kindOfTomorrow": {}}]}, r"spec\.volumes\[new\]: 'kindOfTomorrow'"),
        ({"schedulingGroup": {"podGroupName": "g"}}, r"spec\.schedulingGroup"),
        ({"workloadRef": {"name": "w"}}, r"spec\.workloadRef"),
    ],
)
def test_unhandled_feature_is_refused_by_name(spec: dict[str, object], named: str) -> None:
    """The message names the field and the remedy."""
    with pytest.raises(
        InputError, match=named + r".* is not handled by the plimsoll scheduler; remove it, or"
    ):
        refuse_unhandled(pod(**spec))


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_pod_with_gpus_is_not_sent_to_another_scheduler(kind: str) -> None:
    """Another scheduler knows nothing of the pod's GPUs, so the only remedy is to remove the feature."""
    asking = {"name": "gpu", "resources": {"limits": {"plimsoll.dev/gpu-memory": "1Gi"}}}
    with pytest.raises(InputError, match=r"handled by the plimsoll scheduler; remove it$"):
        refuse_unhandled(pod(**{"containers": [{"name": "main"}], kind: [asking]}, workloadRef={"name": "w"}))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": {"podAffinity": PREFERRED, "podAntiAffinity": PREFERRED}},
        {"affinity": {"podAffinity": REQUIRED, "podAntiAffinity": REQUIRED}},
        {"topologySpreadConstraints": [STRICT]},
        {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": kind, kind: {}} for kind in sorted(PLACELESS_VOLUMES | TIED_VOLUMES)]},
    ],
)
def test_rules_about_pods_wishes_and_known_volumes_are_no_obstacle(spec: dict[str, object]) -> None:
    """Rules about other pods, preferences, and volumes of kinds whose rules are kept do not refuse a pod."""
    refuse_unhandled(pod(**spec))


MANY = 40_000
DURING_SCHEDULING = "requiredDuringSchedulingIgnoredDuringExecution"


def labels() -> dict[str, str]:
    """More labels than are read."""
    return {f"k{number}": "v" for number in range(MANY)}


def terms() -> list[dict[str, Any]]:
    """More terms than are read."""
    numbers = map(str, range(MANY))
    return [{"matchExpressions": [{"key": "k", "operator": "Gt", "values": [number]}]} for number in numbers]


def document(metadata: dict[str, Any], spec: dict[str, Any]) -> str:
    """A pod of one container."""
    containers = [{"name": "main", "resources": {"limits": {"plimsoll.dev/gpu-memory": "1Gi"}}}]
    return json.dumps({"metadata": {"name": "p"} | metadata, "spec": {"containers": containers} | spec})


@pytest.mark.parametrize(
    ("field", "long"),
    [
        ("metadata.labels", lambda: ({"labels": labels()}, {})),
        ("spec.nodeSelector", lambda: ({}, {"nodeSelector": labels()})),
        (
            "spec.affinity.nodeAffinity",
            lambda: ({}, {"affinity": {"nodeAffinity": {DURING_SCHEDULING: {"nodeSelectorTerms": terms()}}}}),
        ),
        (
            "spec.affinity.podAntiAffinity",
            lambda: (
                {},
                {
                    "affinity": {
                        "podAntiAffinity": {
                            DURING_SCHEDULING: [
                                {"topologyKey": "zone", "labelSelector": {"matchLabels": labels()}}
                            ]
                        }
                    }
                },
            ),
        ),
        (
            "spec.topologySpreadConstraints",
            lambda: (
                {},
                {
                    "topologySpreadConstraints": [
                        SPREAD
                        | {"whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels()}}
                    ]
                },
            ),
        ),
        ("spec.initContainers", lambda: ({}, {"initContainers": [{"name": f"c{n}"} for n in range(MANY)]})),
    ],
)
def test_a_field_of_a_megabyte_is_refused_by_name(
    field: str, long: Callable[[], tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    """The message names the field, its length and the limit. Such a field was read for up to a second."""
    pod = decode_pod(document(*long()))
    with pytest.raises(
        InputError, match=rf"^{field}: '\d+ bytes' .* more than the {MOST_BYTES} that are read"
    ):
        understood(pod, POLICIES["headroom"])


def test_an_annotation_that_is_too_long_is_refused_by_name() -> None:
    """Each GPU is compared with all models that a pod names, so there may be a hundred of them."""
    annotations = {"plimsoll.dev/gpu-model": "a," * MOST_CHARACTERS}
    message = (
        rf"\[plimsoll.dev/gpu-model\]: '{2 * MOST_CHARACTERS} characters' are more than the {MOST_CHARACTERS}"
    )
    with pytest.raises(InputError, match=message):
        understood(decode_pod(document({"annotations": annotations}, {})), POLICIES["headroom"])


def test_annotations_leave_space_for_the_placers_answers() -> None:
    """Kubernetes refuses updates of a pod whose annotations are too long, so the kubelet could write no status."""
    full = {"example.com/notes": "\u00e4" * (MOST_ANNOTATION_BYTES // 2)}
    with pytest.raises(
        InputError, match=r"^metadata.annotations: '196625 bytes' are more than the 196608 that"
    ):
        understood(decode_pod(document({"annotations": full}, {})), POLICIES["headroom"])
    half = {"example.com/notes": "x" * (MOST_ANNOTATION_BYTES // 2)}
    understood(decode_pod(document({"annotations": half}, {})), POLICIES["headroom"])


def test_what_a_program_gets_may_be_long() -> None:
    """Arguments, variables and other annotations of a megabyte are nobody's business."""
    long = "x" * 2**20
    main = {"name": "main", "args": [long], "env": [{"name": "SCRIPT", "value": long}]}
    nodes = [f"node-{number:04}.example.com" for number in range(1000)]
    term = {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": nodes}]
    }  # codespell:ignore notin
    spec = {
        "containers": [main],
        "affinity": {"nodeAffinity": {DURING_SCHEDULING: {"nodeSelectorTerms": [term]}}},
    }
    pod = decode_pod(document({"annotations": {"example.com/notes": long}}, spec))
    assert understood(pod, POLICIES["headroom"]).pod == pod
