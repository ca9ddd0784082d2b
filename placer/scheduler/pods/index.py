"""All pods of the cluster by name and by uid, for readers: the objects are those that the watch keeps anyway."""

from collections.abc import Collection, Iterator
from typing import Final

from plimsoll.contract import DECISION
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod

RESIZED: Final = '"resized"'
"""The field of a resized pod's decision, as it stands in the annotation. A container may have the same name."""


class PodIndex:
    """The pods that the watch shows. Not thread-safe: one event loop owns it."""

    def __init__(self) -> None:
        self._by_uid: dict[PodUid, Pod] = {}
        self._by_name: dict[str, dict[str, PodUid]] = {}  # by namespace and name
        self._resized: dict[str, set[PodUid]] = {}

    def put(self, pod: Pod) -> None:
        """Keep a pod that is new or changed; a later pod of the same name takes the name over."""
        uid = PodUid(pod.metadata.uid)
        if RESIZED in (pod.metadata.annotations or {}).get(DECISION, ""):
            self._resized.setdefault(pod.metadata.namespace, set()).add(uid)
        self._by_uid[uid] = pod
        self._by_name.setdefault(pod.metadata.namespace, {})[pod.metadata.name] = uid

    def remove(self, pod: Pod) -> None:
        """Forget a pod that is gone; an unknown pod is no error."""
        uid = PodUid(pod.metadata.uid)
        self._by_uid.pop(uid, None)
        resized = self._resized.get(pod.metadata.namespace, set())
        resized.discard(uid)
        if not resized:
            self._resized.pop(pod.metadata.namespace, None)
        named = self._by_name.get(pod.metadata.namespace, {})
        if named.get(pod.metadata.name) == uid:
            del named[pod.metadata.name]
        if not named:
            self._by_name.pop(pod.metadata.namespace, None)

    def in_namespace(self, namespace: str) -> Iterator[Pod]:
        """The pods of a namespace."""
        return (self._by_uid[uid] for uid in self._by_name.get(namespace, {}).values())

    def resized_in(self, namespace: str) -> Collection[PodUid]:
        """The pods of a namespace that a resize has changed."""
        return self._resized.get(namespace, ())

    def get(self, uid: PodUid) -> Pod | None:
        """The pod of this uid, or None."""
        return self._by_uid.get(uid)

    def find(self, namespace: str, name: str) -> Pod | None:
        """The pod of this name, or None."""
        uid = self._by_name.get(namespace, {}).get(name)
        return None if uid is None else self._by_uid.get(uid)
