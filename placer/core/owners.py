"""The owner of a pod: the workload whose pods do the same work, by a name that outlives each of them.

A pod names its controller. For a Deployment that is the ReplicaSet of one rollout, and for a CronJob the Job of one
run. Both names are made from the workload's by fixed rules, so the pod alone names the workload, and nothing else has
to be read or watched:

* A Deployment's ReplicaSet is `<name>-<pod-template-hash>`, and the pod has the hash as a label. An Argo Rollout does
  the same with a label of its own.
* A CronJob's Job is `<name>-<minutes>`: the time it was due, in minutes since 1970, near the pod's creation.

A pod without a controller is known by its images and commands. Owners of two namespaces are never the same, so no
tenant teaches anything about another's pods.
"""

import hashlib
import json
import re
from datetime import datetime
from typing import Final

from plimsoll.kube.models import OwnerReference, Pod

TEMPLATE_HASHES: Final = {
    "pod-template-hash": "Deployment",
    "rollouts-pod-template-hash": "Rollout",
}
"""The label with the hash that ends a ReplicaSet's name, and the kind of the workload that made it."""

LATEST_RUN_S: Final = 7 * 24 * 3600.0
"""Seconds by which a pod may come after the time at which its CronJob's run was due: a Job makes pods anew, and a
suspended or long one does so days later."""

EARLIEST_RUN_S: Final = 3600.0
"""Seconds by which a pod may come before that time, by clocks that differ."""

LONGEST_IMAGE: Final = 64
"""The most characters of an image in an owner's name; the digits behind it tell two images apart."""

_IMAGE: Final = "image "
"""Begins the owner's name of pods without a controller."""

_RUN: Final = re.compile(r"(?P<name>.+)-(?P<minutes>[0-9]{8,9})")


def owner_of(pod: Pod) -> str | None:
    """The owner's name for people and for Redis: `Deployment default/trainer`; None without a known workload."""
    namespace = pod.metadata.namespace
    controller = next((one for one in pod.metadata.ownerReferences or () if one.controller), None)
    if controller is not None and controller.kind != "Node":  # a static pod's controller is its node
        kind, name = _workload(pod, controller)
        return f"{kind} {namespace}/{name}"
    containers = (*(pod.spec.initContainers or ()), *pod.spec.containers)
    stated = [[one.image, one.command, one.args] for one in containers]
    if not any(any(one) for one in stated):
        return None
    digits = hashlib.sha256(json.dumps(stated).encode()).hexdigest()[:12]
    image = (pod.spec.containers[0].image or "no image")[:LONGEST_IMAGE]
    return f"{_IMAGE}{namespace}/{image}#{digits}"


def has_controller(owner: str) -> bool:
    """Whether an owner's name, as `owner_of` gives it, is that of a controller, and not of an image."""
    return not owner.startswith(_IMAGE)


def _workload(pod: Pod, controller: OwnerReference) -> tuple[str, str]:
    """Kind and name of the workload behind a pod's controller."""
    name = controller.name or controller.uid
    if controller.kind == "ReplicaSet":
        for label, kind in TEMPLATE_HASHES.items():
            end = f"-{(pod.metadata.labels or {}).get(label, '')}"
            if len(end) > 1 and name.endswith(end) and name != end:
                return kind, name.removesuffix(end)
    if controller.kind == "Job" and (run := _RUN.fullmatch(name)) is not None:
        created_s = _seconds(pod.metadata.creationTimestamp)
        late_s = None if created_s is None else created_s - 60 * int(run["minutes"])
        if late_s is not None and -EARLIEST_RUN_S <= late_s <= LATEST_RUN_S:
            return "CronJob", run["name"]
    return controller.kind or "controller", name


def _seconds(time: str | None) -> float | None:
    try:
        return None if time is None else datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None
