"""Queues whose clock and work the tests turn by hand, and the transcripts that people read of them.

A transcript is a text with a command in each line and its result behind `|`; see `testdata`. A heading begins with
`==` and says what must hold.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import Diagnosis, QueuedPodInfo
from placer.scheduler.queue.queueing_hints import EVERYTHING, NOTHING, Cause, ClusterEvent
from placer.scheduler.queue.unschedulable import Probe
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import ObjectMeta, Pod, PodSpec, PodStatus

TESTDATA = Path(__file__).with_name("testdata")
A, B, C, D = PodUid("a"), PodUid("b"), PodUid("c"), PodUid("d")
N1 = NodeName("n1")
ANY = ClusterEvent(EVERYTHING, N1, best_bytes=2**40)
"""A change of a node that may help every pod."""


def waiting_pod(uid: str, priority: int = 0) -> Pod:
    """A pod without a node."""
    return Pod(metadata=ObjectMeta(name=uid, uid=uid), spec=PodSpec(priority=priority), status=PodStatus())


def queue_of(*uids: PodUid) -> Queue:
    """A queue of pods that were never tried, in the order of their entry; nothing is spread at random."""
    queue = Queue(spread=lambda: 1.0)
    for uid in uids:
        queue.update(waiting_pod(uid), 0)
    return queue


def tried(queue: Queue, now_s: float) -> PodUid | None:
    """The pod to try now; None if there is no work."""
    work = queue.pop(now_s)
    assert not isinstance(work, Probe), work
    return work.uid if work is not None else None


def refuse(queue: Queue, uid: PodUid, diagnosis: Diagnosis | None = None, signature: str = "") -> None:
    """Try the pod, which is next, and refuse it."""
    assert tried(queue, 0.0) == uid
    queue.add_unschedulable(uid, signature or uid, diagnosis or Diagnosis(), 0.0)


@dataclass
class Transcript:
    """A queue, and the commands that a transcript gives to it."""

    queue: Queue = field(default_factory=queue_of)
    now_s: float = 0.0
    probe: Probe | None = None

    def do(self, command: str) -> str:
        """Carry a command out; returns its result."""
        name, *words = command.split()
        named = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        done: str | None = getattr(self, f"do_{name.replace('-', '_')}")(*plain, **named)
        return done or ""

    def do_at(self, now_s: str) -> None:
        """The time."""
        self.now_s = float(now_s)

    def do_add(self, *words: str, priority: str = "0") -> None:
        """The watch shows new pods; with `tried`, another placer has refused them."""
        for uid in words:
            if uid != "tried":
                pod = waiting_pod(uid, int(priority))
                self.queue.update(pod, self.now_s, was_tried="tried" in words)

    do_change = do_add

    def do_refused_elsewhere(self, uid: str) -> None:
        """The watch shows that the leader has refused a pod."""
        self.queue.update(waiting_pod(uid), self.now_s, is_changed=False, was_tried=True)

    def do_delete(self, *uids: str) -> None:
        """Pods are bound or gone."""
        for uid in uids:
            self.queue.delete(PodUid(uid), self.now_s)

    def do_activate(self, uid: str) -> None:
        """What a pod alone waits for has changed."""
        self.queue.activate(PodUid(uid), self.now_s)

    def do_claim_changed(self, *uids: str) -> None:
        """A claim of these pods has changed."""
        for uid in uids:
            self.queue.claim_changed(PodUid(uid), self.now_s)

    def do_pop(self) -> str:
        """The next work."""
        match self.queue.pop(self.now_s):
            case QueuedPodInfo() as pod:
                return f"try {pod.uid}"
            case Probe() as probe:
                self.probe = probe
                return f"probe {probe.pod.uid} on {probe.node}"
            case None:
                return "nothing"

    def do_probed(self, result: str) -> None:
        """The last probe found that the pod `fits`, or these causes."""
        assert self.probe is not None
        self.queue.probed(self.probe, causes_named("" if result == "fits" else result), self.now_s)

    def do_assumed(self, uid: str) -> None:
        """The pod has a place."""
        self.queue.assumed(PodUid(uid), self.now_s)

    def do_failed(self, uid: str) -> None:
        """The pod's attempt or bind failed."""
        self.queue.requeue(PodUid(uid), self.now_s)

    def do_overtaken(self, uid: str) -> None:
        """A change overtook the pod's attempt."""
        self.queue.requeue(PodUid(uid), self.now_s, pause_s=0.0)

    def do_put_off(self, uid: str, pause_s: str) -> None:
        """The pod was not tried."""
        self.queue.requeue(PodUid(uid), self.now_s, float(pause_s))

    def do_rejected(self, uid: str) -> None:
        """The pod is malformed."""
        self.queue.reject(PodUid(uid), self.now_s)

    def do_refused(self, uid: str, *, like: str = "", causes: str = "all", note: str = "") -> None:
        """The pod fits nowhere, as all pods `like` it."""
        found = Diagnosis(note, causes_named(causes), may_pass=note == "passes")
        self.queue.add_unschedulable(PodUid(uid), like or uid, found, self.now_s)

    def do_shares(self, *uids: str, like: str) -> None:
        """The pods share the diagnosis of those like them."""
        for uid in uids:
            self.queue.add_unschedulable(PodUid(uid), like, None, self.now_s)

    def do_diagnosis(self, like: str) -> str:
        """The diagnosis that a further pod would share."""
        found = self.queue.unschedulable.find(like)
        return found.shared.note if found is not None and found.shared is not None else "none"

    def do_event(self, *nodes: str, causes: str = "all") -> None:
        """These nodes changed; without any, something that may help on any node."""
        for node in nodes or (None,):
            where = None if node is None else NodeName(node)
            self.queue.move_on(ClusterEvent(causes_named(causes), where, best_bytes=2**40), self.now_s)

    def do_due(self) -> str:
        """The time at which something is tried by itself."""
        return f"{self.queue.due_s():g}" if self.queue.due_s() is not None else "never"

    def do_states(self) -> str:
        """The states of all pods."""
        return ", ".join(f"{pod.uid} {pod.state.name.lower().replace('_', ' ')}" for pod in self.queue)

    def do_upcoming(self, most: str) -> str:
        """The pods that may be tried next."""
        return " ".join(self.queue.upcoming(int(most)))


def causes_named(names: str) -> Cause:
    """The causes of these names, separated by `+`; `all` of them, or none."""
    if names == "all":
        return EVERYTHING
    causes = NOTHING
    for name in filter(None, names.split("+")):
        causes |= Cause[name.upper()]
    return causes


def transcripts() -> Iterator[tuple[str, list[str]]]:
    """All transcripts, each with its heading."""
    for path in sorted(TESTDATA.iterdir()):
        for text in path.read_text().split("\n== ")[1:]:
            heading, *lines = text.splitlines()
            yield heading, [line for line in lines if line and not line.startswith("#")]
