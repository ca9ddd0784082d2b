"""A running pod takes what it has, was promised, and should have, while it is resized in place."""

from typing import Any

import msgspec
import pytest

from placer.core.requests import effective_requests
from plimsoll.kube.models import Pod

Object = dict[str, Any]


def pod(status: Object, spec: Object | None = None) -> Pod:
    """A pod whose container `main` requests one CPU."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    document = {"spec": {"containers": [container], **(spec or {})}, "status": status}
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def has(cpu: str | None, promised: str | None = None, name: str = "main") -> Object:
    """The status of a container."""
    status: Object = {"name": name}
    if cpu is not None:
        status["resources"] = {"requests": {"cpu": cpu}}
    if promised is not None:
        status["allocatedResources"] = {"cpu": promised}
    return status


PENDING = {"type": "PodResizePending", "status": "True"}


@pytest.mark.parametrize(
    ("status", "milli"),
    [
        ({}, 1000),
        ({"containerStatuses": [has("2")]}, 2000),
        ({"containerStatuses": [has("500m")]}, 1000),
        ({"containerStatuses": [has("500m", "1500m")]}, 1500),
        # Without `resources` the kubelet has not reported; the promise alone does not count.
        ({"containerStatuses": [has(None, "3")]}, 1000),
        ({"containerStatuses": [has("2", name="other")]}, 1000),
        # A resize that the node refused for good does not count, and one that is put off does.
        (
            {
                "containerStatuses": [has("500m", "600m")],
                "conditions": [PENDING | {"reason": "Infeasible"}],
            },
            600,
        ),
        ({"containerStatuses": [has("500m")], "conditions": [PENDING | {"reason": "Deferred"}]}, 1000),
    ],
)
def test_a_resize_under_way_counts_at_its_largest(status: Object, milli: int) -> None:
    """The node has to hold the old and the new amount until the resize is over."""
    assert effective_requests(pod(status))["cpu"] == milli


def test_a_sidecars_status_counts_and_an_init_containers_does_not() -> None:
    """Only containers that go on can be resized."""
    one = {"name": "i", "resources": {"requests": {"cpu": "100m"}}}
    status = {"initContainerStatuses": [has("3", name="i")]}
    assert effective_requests(pod(status, {"initContainers": [one]}))["cpu"] == 1000
    assert (
        effective_requests(pod(status, {"initContainers": [one | {"restartPolicy": "Always"}]}))["cpu"]
        == 4000
    )


def test_the_pods_own_level_is_resized_too() -> None:
    """The status of the pod's own level stands beside its spec."""
    own = {"resources": {"requests": {"cpu": "2"}}}
    assert effective_requests(pod({}, own))["cpu"] == 2000
    assert effective_requests(pod({"resources": {"requests": {"cpu": "3"}}}, own))["cpu"] == 3000
    promised = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2500m"}}
    assert effective_requests(pod(promised, own))["cpu"] == 2500


def test_sums_are_rounded_up_once() -> None:
    """Two containers of half a byte take one byte together, as for kube-scheduler."""
    containers = [{"name": name, "resources": {"requests": {"memory": "500m"}}} for name in "ab"]
    assert effective_requests(pod({}, {"containers": containers})) == {"memory": 1}
