"""Refuses a pod whose selectors and terms are too long: while they are read, every other pod waits.

The API server stores objects of more than a megabyte. A selector of that size takes up to a second of the event loop,
longer than the placer may stand still without losing its Lease.
"""

from typing import Final

import msgspec

from plimsoll.kube.models import Container, Pod
from plimsoll.part.errors import InputError

MOST_BYTES: Final = 2**16
"""The most bytes of each field, as JSON: the names of a thousand nodes, or some hundred containers. No field of this
length takes more than some 10 ms."""


def refuse_long(pod: Pod) -> None:
    """Refuse a pod with a field that is longer than `MOST_BYTES`.

    Raises:
        InputError: naming the first such field.
    """
    read = _read(pod)
    if _length(read) <= MOST_BYTES:
        return  # as nearly all pods
    for where, value in read.items():
        if (length := _length(value)) > MOST_BYTES:
            problem = f"as JSON are more than the {MOST_BYTES} that are read"
            raise InputError(where, f"{length} bytes", problem, "write less")


def _read(pod: Pod) -> dict[str, object]:
    """The fields that a decision reads, by their paths."""
    spec, affinity = pod.spec, pod.spec.affinity
    return {
        "metadata.labels": pod.metadata.labels,
        "spec.affinity.nodeAffinity": affinity and affinity.nodeAffinity,
        "spec.affinity.podAffinity": affinity and affinity.podAffinity,
        "spec.affinity.podAntiAffinity": affinity and affinity.podAntiAffinity,
        "spec.nodeSelector": spec.nodeSelector,
        "spec.tolerations": spec.tolerations,
        "spec.topologySpreadConstraints": spec.topologySpreadConstraints,
        "spec.volumes": spec.volumes,
        "spec.containers": [_read_of(one) for one in spec.containers],
        "spec.initContainers": [_read_of(one) for one in spec.initContainers or ()],
    }


def _read_of(container: Container) -> tuple[object, ...]:
    """The parts of a container that are read: a program's arguments and environment may be as long as they like."""
    return container.name, container.resources, container.ports


def _length(value: object) -> int:
    return len(msgspec.json.encode(value))
