"""Properties of the index of volumes: after any changes it answers as an index that is built anew."""

import random
from collections.abc import Hashable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from placer.core.mounts import ClaimKey, mounts_of
from placer.scheduler.plugins.volume_binding import AssumedVolumes, revert
from placer.scheduler.plugins.volume_plugins import VolumePlugins
from placer.scheduler.plugins.volumes.assume_cache import AssumeCache
from placer.scheduler.plugins.volumes.objects import Label
from placer.scheduler.plugins.volumes.store import PodChanges, VolumeStore
from plimsoll.ids import NodeName
from plimsoll.kube.models import Pod
from plimsoll.kube.storage_models import (
    Claim,
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeAttachment,
)
from tests.placer.scheduler.plugins.volumes.objects import (
    BOUND,
    HOSTNAME,
    NO_PROVISIONER,
    SELECTED_NODE,
    ZONE,
    Document,
    bound_claim,
    claim_of,
    class_of,
    no_volumes,
    on_nodes_with,
    user_of,
    using,
    volume_of,
)

NODES: Mapping[NodeName, Mapping[str, str]] = {
    NodeName("n0"): {HOSTNAME: "n0", ZONE: "a"},
    NodeName("n1"): {HOSTNAME: "n1", ZONE: "b"},
    NodeName("n2"): {HOSTNAME: "n2"},
}
CLASSES = {"hand": NO_PROVISIONER, "c1": "d1", "c2": "d2"}
SIZES = ("1Gi", "2Gi", "3Gi")
STEPS = 60


def nodes_with(label: Label) -> frozenset[NodeName]:
    """The nodes that have a label."""
    return frozenset(name for name, labels in NODES.items() if label in labels.items())


class World:
    """Storage objects that change at random, and pods that ask for their claims.

    Attributes:
        index: takes each change.
        stale: the nodes that the index said may have changed, since the last look.
        woken: the nodes on which the index said a pod may fit now, with None for all.
        told: the claims whose change the index reported.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - a draw that can be repeated
        self.stale: set[NodeName] = set()
        self.woken: set[NodeName | None] = set()
        self.published: set[ClaimKey | None] = set()
        self.index = VolumePlugins(VolumeStore(self.stale.add, self.woken.add, nodes_with))
        self.index.store.on_claim(self.published.add)
        self.objects: dict[tuple[type, str], Any] = {}
        self.residents: dict[str, tuple[NodeName, Pod]] = {}
        self.reserved: list[AssumedVolumes] = []
        self.pods = [self._pod(f"p{number}") for number in range(6)]
        self.version = 0
        for make in (self._class, self._claim, self._volume, self._limits):
            for _ in range(6):
                make()

    def rebuilt(self) -> VolumePlugins:
        """An index made of the objects as they are now, without any history."""
        made = VolumePlugins(VolumeStore(lambda _: None, lambda _: None, nodes_with))
        names = list(self.objects)
        self.chance.shuffle(names)
        for name in names:
            made.store.put(self.objects[name])
        for node, pod in self.residents.values():
            made.store.pod_assigned(node, mounts_of(pod))
        return made

    def change(self) -> None:
        """Change one thing."""
        self.chance.choice(
            (
                *(self._claim, self._claim, self._volume, self._volume, self._volume),
                *(self._resident, self._resident, self._class, self._limits, self._space, self._driver),
                *(self._attachment, self._remove),
            )
        )()

    def reserve(self) -> None:
        """Place a pod that fits, or give an earlier place up."""
        if self.reserved and self.chance.random() < 0.5:
            revert(self.index.store, self.reserved.pop(self.chance.randrange(len(self.reserved))))
            return
        pod, node = self.chance.choice(self.pods), self.chance.choice(list(NODES))
        if not self.index.reasons(pod, mounts_of(pod), node, NODES[node]):
            made = self.index.reserve(pod, mounts_of(pod), node, NODES[node])
            self.reserved += [made] if made is not None else []

    def give_all_up(self) -> None:
        """Give all places up."""
        while self.reserved:
            revert(self.index.store, self.reserved.pop())

    def _put(self, kind: type[Any], name: str, document: Document) -> None:
        self.version += 1
        meta = {"name": name, "uid": name, "resourceVersion": str(self.version)}
        full = {**document, "metadata": {**meta, **document.pop("metadata", {})}}
        self.objects[kind, name] = msgspec.convert(full, kind)
        self.index.store.put(self.objects[kind, name])

    def _remove(self) -> None:
        if self.objects:
            self.index.store.remove(self.objects.pop(self.chance.choice(list(self.objects))))

    def _claim(self) -> None:
        draw, name = self.chance, f"c{self.chance.randrange(4)}"
        spec: Document = {
            "accessModes": [draw.choice(["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"])],
            "storageClassName": draw.choice(["hand", "hand", "c1", "c2"]),
            "resources": {"requests": {"storage": draw.choice(SIZES)}},
        }
        notes: dict[str, str] = {}
        if draw.random() < 0.3:
            spec["volumeName"] = f"v{draw.randrange(6)}"
            notes.update(BOUND)
        elif draw.random() < 0.2:
            notes[SELECTED_NODE] = draw.choice(list(NODES))
        self._put(Claim, name, {"spec": spec, "metadata": {"annotations": notes}})

    def _volume(self) -> None:
        draw, name = self.chance, f"v{self.chance.randrange(6)}"
        spec: Document = {
            "accessModes": draw.choice(
                [["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]]
            ),
            "capacity": {"storage": draw.choice(SIZES)},
            "storageClassName": draw.choice(["hand", "hand", "c1"]),
            "csi": {"driver": draw.choice(["d1", "d2"]), "volumeHandle": name},
        }
        key = draw.choice([ZONE, HOSTNAME, None])
        if key is not None:
            value = draw.choice(["a", "b"]) if key == ZONE else draw.choice(list(NODES))
            spec["nodeAffinity"] = on_nodes_with(key, value)
        if draw.random() < 0.3:
            claim = f"c{draw.randrange(4)}"
            spec["claimRef"] = {"namespace": "default", "name": claim, "uid": draw.choice(["", claim])}
        labels = {ZONE: "a"} if draw.random() < 0.2 else {}
        phase = draw.choice(["Available", "Available", "Released"])
        self._put(Volume, name, {"spec": spec, "status": {"phase": phase}, "metadata": {"labels": labels}})

    def _class(self) -> None:
        name = self.chance.choice(list(CLASSES))
        known = self.objects.pop((StorageClass, name), None)
        if known is not None and self.chance.random() < 0.5:
            self.index.store.remove(known)
            return
        document: Document = {
            "provisioner": CLASSES[name],
            "volumeBindingMode": self.chance.choice(
                ["WaitForFirstConsumer", "WaitForFirstConsumer", "Immediate"]
            ),
        }
        if self.chance.random() < 0.3:
            document["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
        self._put(StorageClass, name, document)

    def _limits(self) -> None:
        drivers = [{"name": "d1", "allocatable": {"count": self.chance.randrange(3)}}, {"name": "d2"}]
        self._put(CsiNode, self.chance.choice(list(NODES)), {"spec": {"drivers": drivers}})

    def _space(self) -> None:
        topology = {"matchLabels": self.chance.choice([{ZONE: "a"}, {HOSTNAME: "n1"}, {}])}
        document: Document = {
            "storageClassName": self.chance.choice(["c1", "c2"]),
            "capacity": self.chance.choice(SIZES),
            "nodeTopology": topology,
        }
        self._put(StorageCapacity, f"s{self.chance.randrange(3)}", document)

    def _driver(self) -> None:
        name = self.chance.choice(["d1", "d2"])
        self._put(CsiDriver, name, {"spec": {"storageCapacity": self.chance.random() < 0.5}})

    def _attachment(self) -> None:
        name = f"a{self.chance.randrange(3)}"
        known = self.objects.get((VolumeAttachment, name))
        if known is not None:  # its spec cannot change
            return
        source = {"persistentVolumeName": f"v{self.chance.randrange(6)}"}
        spec = {"attacher": "d1", "nodeName": self.chance.choice(list(NODES)), "source": source}
        self._put(VolumeAttachment, name, {"spec": spec})

    def _resident(self) -> None:
        name = f"r{self.chance.randrange(4)}"
        known = self.residents.pop(name, None)
        if known is not None:
            self.index.store.pod_unassigned(known[0], mounts_of(known[1]))
            self._note_pods_of(known[0])
            return
        node, pod = self.chance.choice(list(NODES)), self._pod(name)
        self.residents[name] = node, pod
        self.index.store.pod_assigned(node, mounts_of(pod))
        self._note_pods_of(node)

    def _note_pods_of(self, node: NodeName) -> None:
        """The cluster notes and announces the node of a pod that comes or leaves."""
        self.stale.add(node)
        self.woken.add(node)

    def _pod(self, name: str) -> Pod:
        names = self.chance.sample(range(4), self.chance.randint(1, 2))
        volumes = using(*(f"c{number}" for number in names))
        if self.chance.random() < 0.3:
            iscsi = {"iqn": self.chance.choice("xy"), "readOnly": self.chance.random() < 0.5}
            volumes.append({"name": "disk", "iscsi": iscsi})
        return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": {"volumes": volumes}}, Pod)


def answers(index: VolumePlugins, pod: Pod) -> dict[NodeName, tuple[str, ...]]:
    """The index's answers on all nodes."""
    return {node: index.reasons(pod, mounts_of(pod), node, labels) for node, labels in NODES.items()}


@pytest.mark.parametrize("seed", range(40))
def test_index_answers_as_one_that_is_built_anew(seed: int) -> None:
    """However objects and pods came and went, and whatever was assumed and given up, the answers are the same."""
    world = World(seed)
    for _ in range(STEPS):
        world.reserve()
        world.change()
        world.give_all_up()
        rebuilt = world.rebuilt()
        for pod in world.pods:
            assert answers(world.index, pod) == answers(rebuilt, pod)


@pytest.mark.parametrize("seed", range(20))
def test_index_answers_for_pods_that_only_might_come_or_go(seed: int) -> None:
    """With pods left out or added, the answer is that of an index which is built anew without or with them."""
    world = World(seed)
    for _ in range(STEPS):
        world.change()
        node = world.chance.choice(list(NODES))
        less = [name for name, (where, _) in world.residents.items() if where == node]
        less = world.chance.sample(less, world.chance.randint(0, len(less)))
        more = [world._pod(f"more{number}") for number in range(world.chance.randint(0, 1))]
        rebuilt = world.rebuilt()
        for name in less:
            rebuilt.store.pod_unassigned(node, mounts_of(world.residents[name][1]))
        for one in more:
            rebuilt.store.pod_assigned(node, mounts_of(one))
        moves = PodChanges(
            [mounts_of(world.residents[name][1]) for name in less], [mounts_of(one) for one in more]
        )
        for pod in world.pods:
            moved = world.index.reasons(pod, mounts_of(pod), node, NODES[node], moves)
            assert moved == rebuilt.reasons(pod, mounts_of(pod), node, NODES[node])


@pytest.mark.parametrize("seed", range(40))
def test_answers_that_change_are_taken_back_and_told(seed: int) -> None:
    """A kept answer holds as long as state and node did not change. A pod that fits now is reported."""
    world = World(seed)
    kept: dict[tuple[Hashable, NodeName], tuple[str, ...]] = {}
    last = {pod.metadata.name: answers(world.index, pod) for pod in world.pods}
    problems = {pod.metadata.name: world.index.problem(pod, mounts_of(pod)) for pod in world.pods}
    for _ in range(STEPS):
        world.change()
        if world.chance.random() < 0.3:
            world.reserve()
        kept = {key: answer for key, answer in kept.items() if key[1] not in world.stale}
        for pod in world.pods:
            state, now = world.index.state(pod, mounts_of(pod)), answers(world.index, pod)
            name, is_told = (
                pod.metadata.name,
                not world.published.isdisjoint({None, *(use.claim for use in mounts_of(pod).claims)}),
            )
            problem, problems[name] = problems[name], world.index.problem(pod, mounts_of(pod))
            assert problem == problems[name] or is_told
            for node, reasons in now.items():
                assert kept.setdefault((state, node), reasons) == reasons
                fits_now = not reasons and bool(last[name][node])
                assert not fits_now or is_told or node in world.woken or None in world.woken
            last[name] = now
        world.stale.clear()
        world.woken.clear()
        world.published.clear()


def test_reserved_volume_is_given_to_nobody_else() -> None:
    """Two pods with like claims get two volumes, and a third gets none until one is given up."""
    woken: set[NodeName | None] = set()
    index, node = VolumePlugins(VolumeStore(lambda _: None, woken.add, nodes_with)), NodeName("n0")
    pods = [user_of(str(number), f"c{number}") for number in range(3)]
    for thing in (class_of(provisioner=NO_PROVISIONER), volume_of("v0"), volume_of("v1")):
        index.store.put(thing)
    for number in range(3):
        index.store.put(claim_of(f"c{number}"))
    assert len({index.state(pod, mounts_of(pod)) for pod in pods}) == 1  # like claims share their verdicts
    made = []
    for pod in pods[:2]:
        one = index.reserve(pod, mounts_of(pod), node, NODES[node])
        assert one is not None
        made.append(one)
    assert [step.volume.name for one in made for step in one.volumes.static] == ["v0", "v1"]
    assert not any(answers(index, pods[1]).values())
    text = "node(s) didn't find available persistent volumes to bind"
    assert set(answers(index, pods[2]).values()) == {(text,)}
    woken.clear()
    revert(index.store, made[0])
    assert not any(answers(index, pods[2]).values())
    assert woken == {None}


def test_later_version_of_a_volume_replaces_each_assumption() -> None:
    """After the watch has shown a new version, dropping an earlier assumption changes nothing, now and later."""
    changes: list[tuple[str | None, str | None]] = []
    cache: AssumeCache[str, str] = AssumeCache(lambda _, before, now: changes.append((before, now)))
    cache.put("v", "1")
    cache.assume("v", "assumed")
    cache.put("v", "2")
    cache.restore("v", "assumed")
    cache.assume("v", "again")
    assert (cache.get("v"), cache.shown("v")) == ("again", "2")
    cache.restore("v", "assumed")
    cache.restore("v", "again")
    assert (cache.get("v"), cache.shown("v")) == ("2", "2")
    states = (None, "1", "assumed", "2", "again", "2")
    assert changes == list(pairwise(states))


def test_class_that_comes_makes_unbound_claims_count_as_attached() -> None:
    """The claim of a pod with a node counts against the limit of its class's driver once the class is known."""
    index, node = no_volumes(), NodeName("n0")
    drivers = [{"name": "d", "allocatable": {"count": 1}}]
    index.store.put(msgspec.convert({"metadata": {"name": node}, "spec": {"drivers": drivers}}, CsiNode))
    for name in ("old", "new"):
        index.store.put(bound_claim(name, name))
    old, new = user_of("old", "old"), user_of("new", "new")
    index.store.put(volume_of("new", csi={"driver": "d", "volumeHandle": "new"}))
    index.store.pod_assigned(node, mounts_of(old))
    assert not index.reasons(new, mounts_of(new), node, {})
    index.store.put(class_of())
    assert index.reasons(new, mounts_of(new), node, {}) == ("node(s) exceed max volume count",)
