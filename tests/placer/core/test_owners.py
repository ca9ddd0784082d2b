"""The owner of a pod, as its own object shows it."""

import pytest

from placer.core.owners import owner_of
from plimsoll.kube.models import Container, ObjectMeta, OwnerReference, Pod, PodSpec

CREATED = "2026-01-02T03:04:30Z"
DUE_MIN = 29455384
"""2026-01-02T03:04:00Z in minutes since 1970."""


def pod(kind: str = "", name: str = "", *, labels: dict[str, str] | None = None, args: str = "") -> Pod:
    """A pod with this controller."""
    owners = [OwnerReference("uid", kind, name, controller=True)] if kind or name else []
    meta = ObjectMeta(
        name="p", namespace="team", labels=labels, creationTimestamp=CREATED, ownerReferences=owners
    )
    containers = [Container(name="main", image="train:1", command=["python"], args=[args])]
    return Pod(metadata=meta, spec=PodSpec(containers=containers))


@pytest.mark.parametrize(
    ("controlled", "owner"),
    [
        (
            pod("ReplicaSet", "web-6f7d9c", labels={"pod-template-hash": "6f7d9c"}),
            "Deployment team/web",
        ),
        (
            pod("ReplicaSet", "web-6f7d9c", labels={"rollouts-pod-template-hash": "6f7d9c"}),
            "Rollout team/web",
        ),
        (pod("ReplicaSet", "web-6f7d9c"), "ReplicaSet team/web-6f7d9c"),
        (pod("ReplicaSet", "web", labels={"pod-template-hash": "6f7d9c"}), "ReplicaSet team/web"),
        (pod("Job", f"night-{DUE_MIN}"), "CronJob team/night"),
        (pod("Job", f"night-{DUE_MIN - 2 * 24 * 60}"), "CronJob team/night"),
        (pod("Job", "night-12345678"), "Job team/night-12345678"),
        (pod("Job", f"night-{DUE_MIN + 24 * 60}"), f"Job team/night-{DUE_MIN + 24 * 60}"),
        (pod("Job", "train"), "Job team/train"),
        (pod("StatefulSet", "db"), "StatefulSet team/db"),
        (pod("PyTorchJob", "bert"), "PyTorchJob team/bert"),
    ],
)
def test_the_owner_is_the_workload(controlled: Pod, owner: str) -> None:
    """A pod belongs to the workload behind its controller, however many rollouts and runs that had."""
    assert owner_of(controlled) == owner


@pytest.mark.parametrize("controlled", [pod(), pod("Node", "n1")])
def test_a_pod_without_a_workload_is_known_by_image_and_command(controlled: Pod) -> None:
    """Bare and static pods that run the same belong together, and others do not."""
    owner = owner_of(controlled)
    assert owner is not None
    assert owner.startswith("image team/train:1#")
    assert owner == owner_of(pod())
    assert owner != owner_of(pod(args="--large"))


def test_a_pod_of_which_nothing_is_known_has_no_owner() -> None:
    """Without controller, image and command nothing shows which pods do the same work."""
    assert owner_of(Pod(spec=PodSpec(containers=[Container(name="main")]))) is None


def test_only_the_controller_counts() -> None:
    """An owner that is no controller says nothing about the work."""
    other = ObjectMeta(
        namespace="team", ownerReferences=[OwnerReference("u", "Queue", "q", controller=False)]
    )
    found = owner_of(Pod(metadata=other, spec=PodSpec(containers=[Container(name="main", image="i")])))
    assert found is not None
    assert found.startswith("image team/i#")
