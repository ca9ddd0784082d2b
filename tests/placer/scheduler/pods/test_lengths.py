"""A pod that says more about its place than is read is refused before it is read."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from placer.core.policies import POLICIES
from placer.scheduler.pods.lengths import MOST_BYTES
from placer.scheduler.profile import understood
from plimsoll.contract import MOST_ANNOTATION_BYTES, MOST_CHARACTERS
from plimsoll.kube.models import decode_pod
from plimsoll.part.errors import InputError

MANY = 40_000
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


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
            lambda: ({}, {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms()}}}}),
        ),
        (
            "spec.affinity.podAntiAffinity",
            lambda: (
                {},
                {
                    "affinity": {
                        "podAntiAffinity": {
                            REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": labels()}}]
                        }
                    }
                },
            ),
        ),
        (
            "spec.topologySpreadConstraints",
            lambda: (
                {},
                {"topologySpreadConstraints": [SPREAD | {"labelSelector": {"matchLabels": labels()}}]},
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
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}},
    }
    pod = decode_pod(document({"annotations": {"example.com/notes": long}}, spec))
    assert understood(pod, POLICIES["headroom"]).pod == pod
