"""The locality labels of bound pods, and an own check that they hold. Pure.

A pod's labels are those of its first version with a node. All pods are of one namespace here.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.chaos.asks import annotations_of

AFFINITY: Final = "plimsoll.dev/affinity"
ANTI_AFFINITY: Final = "plimsoll.dev/anti-affinity"
EXCLUSION: Final = "plimsoll.dev/exclusion"


@dataclass(frozen=True, slots=True)
class _Labelled:
    gpus: frozenset[str]
    labels: Mapping[str, str]


class Labels:
    """The pods that are bound and have not ended, with their GPUs and labels."""

    def __init__(self) -> None:
        self._pods: dict[str, _Labelled] = {}
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        self._together: defaultdict[str, set[str]] = defaultdict(set)  # by affinity label

    def put(self, uid: str, pod: Mapping[str, Any], gpus: Collection[str]) -> None:
        """Count a pod that was bound to these GPUs."""
        keys = (AFFINITY, ANTI_AFFINITY, EXCLUSION)
        stated = annotations_of(dict(pod))
        labels = {key: stated[key] for key in keys if key in stated}
        self._pods[uid] = _Labelled(frozenset(gpus), labels)
        for gpu in gpus:
            self._on[gpu].add(uid)
        if gpus and AFFINITY in labels:
            self._together[labels[AFFINITY]].add(uid)

    def drop(self, uid: str) -> None:
        """Count a pod no longer."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        for gpu in known.gpus:
            self._on[gpu].discard(uid)
        if AFFINITY in known.labels:
            self._together[known.labels[AFFINITY]].discard(uid)

    def pods(self) -> set[str]:
        """The pods that count."""
        return set(self._pods)

    def closed(self) -> set[str]:
        """The GPUs that no pod without an exclusion label may join."""
        return {
            gpu for gpu, uids in self._on.items() if any(EXCLUSION in self._pods[uid].labels for uid in uids)
        }

    def broken(self, uid: str) -> list[tuple[str, str]]:
        """The other pods whose labels, or whose own, do not hold beside this one, each with the reason."""
        own = self._pods.get(uid)
        if own is None:
            return []
        found = []
        for other in sorted({one for gpu in own.gpus for one in self._on[gpu]} - {uid}):
            labels = self._pods[other].labels
            if own.labels.get(EXCLUSION) != labels.get(EXCLUSION):
                found.append((other, "exclusion"))
            if ANTI_AFFINITY in own.labels and own.labels[ANTI_AFFINITY] == labels.get(ANTI_AFFINITY):
                found.append((other, "anti-affinity"))
        found += (
            (other, "affinity")
            for other in sorted(self._together.get(own.labels.get(AFFINITY, ""), set()) - {uid})
            if self._pods[other].gpus != own.gpus
        )
        return found
