"""A pod that uses a feature which this scheduler lacks is refused by the feature's name."""

from typing import Any

import msgspec
import pytest

from placer.kube.unhandled import PLACELESS_VOLUMES, refuse_unhandled
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
        ({"affinity": {"podAffinity": REQUIRED}}, r"spec\.affinity\.podAffinity"),
        ({"affinity": {"podAntiAffinity": REQUIRED}}, r"spec\.affinity\.podAntiAffinity"),
        (
            {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]},
            r"spec\.topologySpreadConstraints: 'zone'",
        ),
        ({"topologySpreadConstraints": [SPREAD]}, r"spec\.topologySpreadConstraints"),
        ({"resourceClaims": [{"name": "gpu"}]}, r"spec\.resourceClaims"),
        (
            {"containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]},
            r"spec\.containers\[main\]\.resources\.claims",
        ),
        (
            {
                "containers": [
                    {"name": "main", "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}
                ]
            },
            r"spec\.containers\[main\]\.resources: 'deviceclass\.resource\.kubernetes\.io/gpu'",
        ),
        (
            {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]},
            r"spec\.volumes\[data\]: 'persistentVolumeClaim'",
        ),
        ({"volumes": [{"name": "scratch", "ephemeral": {}}]}, r"spec\.volumes\[scratch\]: 'ephemeral'"),
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


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": {"podAffinity": PREFERRED, "podAntiAffinity": PREFERRED}},
        {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": kind, kind: {}} for kind in sorted(PLACELESS_VOLUMES)]},
    ],
)
def test_wishes_and_volumes_of_every_node_are_no_obstacle(spec: dict[str, object]) -> None:
    """Preferences, and volumes that every node can mount, do not keep a pod from being placed."""
    refuse_unhandled(pod(**spec))
