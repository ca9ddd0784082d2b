"""A cluster as the pool sees it, in a few lines: a device plugin, kube-scheduler, a kubelet and a placer.

The planner's steps are carried out at once. Everything else happens when a test says so. It is a model, not a fake of
a server: `tests/node/test_pool.py` shows the same with the real ones.
"""

from dataclasses import dataclass, field, replace

from placer.core.pool import PoolPart
from placer.pool.core.facts import Facts, NodeFacts, User
from placer.pool.core.planner import Planner
from placer.pool.core.release_policy import ReleasePolicy
from placer.pool.core.round import Round
from placer.pool.core.steps import Drop, Give, Keep, Learn, Reserve
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.pool import Release, Reservation

NODE = NodeName("n1")
ACQUIRE_S = 60.0
ON_DEMAND = ReleasePolicy()


@dataclass
class Model:
    """A node, or several.

    Attributes:
        cards: by node, its GPUs, in the order in which the kubelet gives them.
        held: by card, the pod that has it of the device plugin: a reservation's uid, or a native pod's.
        last: the last round.
    """

    policy: ReleasePolicy = ON_DEMAND
    cards: dict[NodeName, list[GpuUuid]] = field(
        default_factory=lambda: {NODE: [GpuUuid(f"GPU-{number}") for number in range(3)]}
    )
    facts: Facts = field(default_factory=lambda: Facts("pool"))
    held: dict[GpuUuid, PodUid] = field(default_factory=dict)
    now_s: float = 100.0
    last: Round | None = None
    versions: int = 0

    def __post_init__(self) -> None:
        self.planner = Planner(self.policy, ACQUIRE_S)
        for name, cards in self.cards.items():
            self.node(name, devices=len(cards))

    def node(self, name: NodeName = NODE, **changes: object) -> None:
        """A node is new or changed."""
        known = self.facts.nodes.get(name, NodeFacts(ready=True, schedulable=True, gpu_bytes=24))
        self.facts.nodes[name] = replace(known, **changes)  # type: ignore[arg-type]

    def round(self, later_s: float = 0.0) -> Round:
        """Plan once, after this much time, and carry the steps out as the API server would."""
        self.now_s += later_s
        planned = self.last = self.planner.plan(self.facts, self.now_s)
        for step in planned.steps:
            match step:
                case Reserve(node, name):
                    assert not any(one.name == name for one in self.reservations), "409"
                    self.versions += 1
                    made = Reservation(name, PodUid(f"{name}#{self.versions}"), str(self.versions), node)
                    self.facts.reservations[node][made.uid] = made
                case Learn(one, gpu):
                    self.put(replace(one, gpu=gpu))
                case Give(one):
                    self.put(replace(one, release=Release.ASKED))
                case Keep(one):
                    self.put(replace(one, release=None))
                case Drop(one):
                    self.vanish(one)
        return planned

    def settle(self, later_s: float = 0.0) -> None:
        """Let everybody do their part until nothing is left to do: controller, scheduler, kubelet, placer."""
        for _ in range(50):
            before = self.versions
            planned = self.round(later_s)
            later_s = 0.0
            self.schedule()
            self.start()
            self.grant()
            if not planned.steps and self.versions == before:
                return
        raise AssertionError("the pool never settles")

    def schedule(self) -> None:
        """kube-scheduler places reservations where the device plugin has GPUs."""
        for one in self.reservations:
            if one.bound or one.leaving:
                continue
            taken = self.facts.devices[one.node] < self.facts.nodes[one.node].devices
            if taken:
                self.facts.devices[one.node] += 1
            self.put(replace(one, bound=taken, unschedulable=not taken))

    def start(self) -> None:
        """The kubelet gives each reservation a card, which it names."""
        for one in self.reservations:
            if one.bound and one.card is None:
                card = self.free(one.node)[0]
                self.held[card] = one.uid
                self.put(replace(one, card=card))

    def grant(self) -> None:
        """The placer grants releases of cards that no pod uses."""
        for one in self.reservations:
            if one.release is Release.ASKED and one.gpu not in self.facts.users.get(one.node, {}):
                self.put(replace(one, release=Release.GRANTED))

    def free(self, node: NodeName = NODE) -> list[GpuUuid]:
        """The cards that the device plugin has."""
        return [card for card in self.cards[node] if card not in self.held]

    def use(self, name: str, card: GpuUuid, node: NodeName = NODE) -> None:
        """The placer puts a pod on a card."""
        for waiting in self.facts.waiting.values():
            waiting.pop(PodUid(name), None)
        self.facts.users[node][card].add(User(PodUid(name), "team", name))

    def end(self, name: str, card: GpuUuid, node: NodeName = NODE) -> None:
        """A pod that shares ends."""
        self.facts.users[node][card].discard(User(PodUid(name), "team", name))
        if not self.facts.users[node][card]:
            del self.facts.users[node][card]

    def wait(self, name: str, demand: PodDemand | None = None, *nodes: NodeName) -> None:
        """A pod waits for a card on one of these nodes, as the placer says."""
        self.facts.waiting[nodes or (NODE,)][PodUid(name)] = demand or sharing(30)

    def native(self, name: str, node: NodeName = NODE) -> GpuUuid:
        """A native pod gets a card of the device plugin."""
        card = self.free(node)[0]
        self.held[card] = PodUid(name)
        self.facts.devices[node] += 1
        return card

    def end_native(self, card: GpuUuid, node: NodeName = NODE) -> None:
        """A native pod ends."""
        del self.held[card]
        self.facts.devices[node] -= 1

    def vanish(self, one: Reservation) -> None:
        """A reservation is gone."""
        found = self.facts.reservations[one.node].pop(one.uid)
        if found.bound:
            self.facts.devices[one.node] -= 1
        for card in [card for card, uid in self.held.items() if uid == one.uid]:
            del self.held[card]

    def put(self, one: Reservation) -> None:
        """A reservation changed."""
        self.versions += 1
        self.facts.reservations[one.node][one.uid] = replace(one, version=str(self.versions))

    @property
    def reservations(self) -> list[Reservation]:
        """All reservations."""
        return [one for there in self.facts.reservations.values() for one in there.values()]

    @property
    def pool(self) -> list[GpuUuid]:
        """The cards of reservations, sorted."""
        return sorted(one.gpu for one in self.reservations if one.gpu is not None)

    def standing(self, node: NodeName = NODE) -> PoolPart:
        """The cards that the placer may use, and the number of those that may join."""
        there = self.facts.reservations.get(node, {}).values()
        inside = frozenset(one.gpu for one in there if one.in_pool and one.gpu is not None)
        free = max(0, self.facts.nodes[node].devices - self.facts.devices[node])
        return PoolPart(inside, free + sum(one.joining and one.bound for one in there))


def sharing(
    share_pct: int, memory_bytes: int = 1, name: str | None = None, uuid: str | None = None
) -> PodDemand:
    """A pod with one container that shares a card."""
    one = ContainerDemand(ContainerName("main"), 1, memory_bytes, share_pct, 100, whole=False)
    return PodDemand((one,), gpu_id=GpuUuid(uuid) if uuid else None, gpu_name=name)


def whole(gpus: int = 1) -> PodDemand:
    """A pod that wants whole cards."""
    return PodDemand((ContainerDemand(ContainerName("main"), gpus, None, 0, 100, whole=True),))


def best_effort() -> PodDemand:
    """A pod that declares nothing."""
    return PodDemand((ContainerDemand(ContainerName("main"), 1, None, 0, 100, whole=False),))
