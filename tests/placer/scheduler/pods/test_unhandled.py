"""A pod that uses a feature which this scheduler lacks is refused by the feature's name."""

from typing import Any

import msgspec
import pytest

from placer.scheduler.pods.unhandled import MOST_CLAIMS, PLACELESS_VOLUMES, TIED_VOLUMES, refuse_unhandled
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError

REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone"}


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
        {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]},
        {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": kind, kind: {}} for kind in sorted(PLACELESS_VOLUMES | TIED_VOLUMES)]},
    ],
)
def test_rules_about_pods_wishes_and_known_volumes_are_no_obstacle(spec: dict[str, object]) -> None:
    """Rules about other pods, preferences, and volumes of kinds whose rules are kept do not refuse a pod."""
    refuse_unhandled(pod(**spec))
