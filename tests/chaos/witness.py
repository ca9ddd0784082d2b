"""The independent watch of pods: its own reading of each version, and its own sums.

It takes each version of each pod in the order in which the API server wrote them, so its sums are those of each
moment. After a 410, and after a restart of the API server, versions may be missing. What always holds: a pod is
judged by its first version with a node. Later writes by tenants count for nothing. A resize counts, as only
the placer may write one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.answers import ENDED, answers_of, promises_of, resized
from tests.chaos.asks import UnreadableError, annotations_of
from tests.chaos.fleet import Card
from tests.chaos.journal import Journal
from tests.chaos.labels import Labels
from tests.chaos.pods import KIND, MALFORMED
from tests.chaos.promises import Sums

Object = dict[str, Any]

TENANT: Final = "tenant"
"""The field manager of all writes by tenants."""
PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod's first version with a node."""

    name: str
    node: str
    answers: Mapping[str, str]
    version: int
    seen_s: float


@dataclass(slots=True)
class Witness:
    """A `Listener` of pods.

    Attributes:
        pods: every pod that exists, by uid, as last seen.
        bound: every pod that was ever bound, by uid.
        sums: the promises of the pods that are bound and have not ended.
        labels: the locality labels of the same pods.
    """

    cards: Mapping[str, Card]
    journal: Journal
    pods: dict[str, Object] = field(default_factory=dict)
    bound: dict[str, Bound] = field(default_factory=dict)
    sums: Sums = field(init=False)
    labels: Labels = field(default_factory=Labels)
    _judging: bool = True
    _broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sums = Sums(self.cards)

    def take_list(self, items: Sequence[Object]) -> None:
        """See `Listener`. A list has no order, so the sums are judged once all of it is taken."""
        self._judging = False
        seen = {pod["metadata"]["uid"] for pod in items}
        for uid in self.pods.keys() - seen:
            self.take(self.pods[uid], deleted=True)
        for pod in items:
            self.take(pod, deleted=False)
        self._judging = True
        self._judge(self.cards.keys(), "a list")
        for uid in self.labels.pods():
            self._judge_labels(uid)

    def take(self, item: Object, *, deleted: bool) -> None:
        """See `Listener`: count a pod's next version, and judge it."""
        uid, name = item["metadata"]["uid"], item["metadata"]["name"]
        if deleted:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = item
        touched = {promise.gpu for promise in self.sums.of(uid)}
        if item["spec"].get("nodeName"):
            if uid not in self.bound:
                self._see_bound(item)
            else:
                self._see_bound_again(item)
        if deleted or item.get("status", {}).get("phase") in ENDED:
            self.sums.drop(uid)
            self.labels.drop(uid)
        self._judge(touched | {promise.gpu for promise in self.sums.of(uid)}, name)

    def _see_bound(self, pod: Object) -> None:
        meta, uid, node = pod["metadata"], pod["metadata"]["uid"], pod["spec"]["nodeName"]
        self.bound[uid] = Bound(
            meta["name"], node, answers_of(pod), int(meta["resourceVersion"]), self.journal.elapsed_s
        )
        self.journal.note(
            "bound",
            pod=meta["name"],
            uid=uid,
            node=node,
            answers=answers_of(pod),
            version=meta["resourceVersion"],
        )
        if pod["spec"].get("schedulerName") != "plimsoll":
            return
        if (meta.get("labels") or {}).get(KIND) == MALFORMED:
            self.journal.find(f"the malformed pod {meta['name']} was bound to {node}")
        promises, problems = promises_of(pod, self.cards)
        for problem in problems:
            self.journal.find(f"pod {meta['name']}: {problem}", annotations=annotations_of(pod))
        self.sums.put(uid, promises)
        self.labels.put(uid, pod, {promise.gpu for promise in promises})
        self._judge_labels(uid)

    def _judge_labels(self, uid: str) -> None:
        for other, kind in self.labels.broken(uid) if self._judging else ():
            self.journal.find(f"{kind} does not hold between {self.name(uid)} and {self.name(other)}")

    def _see_bound_again(self, pod: Object) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        first = self.bound[uid]
        if pod["spec"]["nodeName"] != first.node:
            self.journal.find(f"pod {meta['name']} moved from {first.node} to {pod['spec']['nodeName']}")
        if answers_of(pod) == first.answers or not self.sums.of(uid) or written_by_tenant(pod):
            return
        try:
            promises = resized(self.sums.of(uid), pod)
        except UnreadableError as error:
            self.journal.find(f"pod {meta['name']}: {error}")
            return
        if promises != self.sums.of(uid):
            self.journal.note(
                "resized", pod=meta["name"], answers=answers_of(pod), version=meta["resourceVersion"]
            )
            self.sums.put(uid, promises)

    def _judge(self, gpus: Collection[str], since: str) -> None:
        """Check GPUs; a GPU that stays broken is found once."""
        for gpu in gpus if self._judging else ():
            problems = self.sums.broken(gpu)
            if problems and gpu not in self._broken:
                held = [(self.name(one.pod), one) for one in self.sums.on(gpu)]
                for problem in problems:
                    self.journal.find(f"{problem}, since {since}", gpu=gpu, held=held)
            if problems:
                self._broken.add(gpu)
            else:
                self._broken.discard(gpu)

    def name(self, uid: str) -> str:
        """The name of a pod that was bound."""
        return self.bound[uid].name if uid in self.bound else uid


def written_by_tenant(pod: Object) -> bool:
    """Whether a tenant has written one of the annotations that are the placer's."""
    for entry in pod["metadata"].get("managedFields") or ():
        if entry.get("manager") != TENANT:
            continue
        fields = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        if any(f"f:{name}" in fields for name in answers_of(pod)):
            return True
    return False
