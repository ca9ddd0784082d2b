"""The planner keeps its promises over any life of a pool: pods, native pods, faults and rounds in any order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from placer.pool.core.planner import RETRY_S
from placer.pool.core.release_policy import ReleasePolicy
from plimsoll.ids import GpuUuid, NodeName
from tests.placer.pool.model import ACQUIRE_S, NODE, Model, sharing
from tests.slow import examples


class Life(RuleBasedStateMachine):
    """Pods, native pods, faults and rounds in any order, on two nodes."""

    def __init__(self) -> None:
        super().__init__()
        nodes = {NODE: 2, NodeName("n2"): 1}
        cards = {
            node: [GpuUuid(f"GPU-{node}-{index}") for index in range(count)] for node, count in nodes.items()
        }
        self.model = Model(ReleasePolicy(ready=1, idle_s=3), cards)
        self.shared: dict[str, tuple[NodeName, GpuUuid]] = {}
        self.natives: list[tuple[NodeName, GpuUuid]] = []
        self.made = 0
        self.is_broken = False  # a reservation vanished, so a card may have two owners until it is held again

    @rule(node=st.sampled_from([NODE, NodeName("n2")]), share=st.sampled_from([10, 60, 100]))
    def ask(self, node: NodeName, share: int) -> None:
        """A pod waits for a card where one may be had."""
        self.made += 1
        if self.model.standing(node).acquirable:
            self.model.wait(f"s{self.made}", sharing(share), node, *(set(self.model.cards) - {node}))

    @rule()
    def place(self) -> None:
        """The placer puts the pods that wait on cards of the pool."""
        for named, waiting in list(self.model.facts.waiting.items()):
            for name in list(waiting):
                inside = [
                    (node, gpu) for node in named for gpu in sorted(self.model.standing(node).gpus or ())
                ]
                if inside:
                    node, gpu = inside[0]
                    self.model.use(name, gpu, node)
                    self.shared[name] = node, gpu

    @precondition(lambda self: self.shared)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A pod that shares ends."""
        name = data.draw(st.sampled_from(sorted(self.shared)))
        node, card = self.shared.pop(name)
        self.model.end(name, card, node)

    @rule(node=st.sampled_from([NODE, NodeName("n2")]))
    def native(self, node: NodeName) -> None:
        """A native pod comes, where the device plugin has a card."""
        self.made += 1
        if self.model.facts.devices[node] < self.model.facts.nodes[node].devices and self.model.free(node):
            self.natives.append((node, self.model.native(f"x{self.made}", node)))

    @precondition(lambda self: self.natives)
    @rule()
    def end_native(self) -> None:
        """A native pod ends."""
        node, card = self.natives.pop(0)
        self.model.end_native(card, node)

    @rule(later_s=st.sampled_from([0.0, 1.0, 6.0]))
    def round(self, later_s: float) -> None:
        """The controller acts once."""
        self.model.round(later_s)

    @rule()
    def schedule(self) -> None:
        """kube-scheduler acts."""
        self.model.schedule()

    @rule()
    def start(self) -> None:
        """The kubelet acts."""
        self.model.start()

    @rule()
    def grant(self) -> None:
        """The placer acts."""
        self.model.grant()

    @precondition(lambda self: not self.is_broken and self.model.reservations)
    @rule()
    def vanish(self) -> None:
        """Somebody deletes a reservation."""
        self.is_broken = any(
            one.gpu in dict.fromkeys(card for _, card in self.shared.values())
            for one in self.model.reservations
        )
        self.model.vanish(self.model.reservations[0])

    @invariant()
    def no_card_has_two_owners(self) -> None:
        """Unless a reservation vanished, no native pod has a card that pods share."""
        if not self.is_broken:
            used = {card for _, card in self.shared.values()}
            assert used.isdisjoint(card for _, card in self.natives)

    @invariant()
    def cards_in_use_are_held(self) -> None:
        """Unless a reservation vanished."""
        if not self.is_broken:
            assert {card for _, card in self.shared.values()} <= set(self.model.pool)

    def teardown(self) -> None:
        """In the end all pods go, and the pool has one idle card, as the policy says."""
        for name, (node, card) in self.shared.items():
            self.model.end(name, card, node)
        for node, card in self.natives:
            self.model.end_native(card, node)
        self.model.facts.waiting.clear()
        for later_s in (ACQUIRE_S + 1, RETRY_S, 10.0, 10.0):
            self.model.settle(later_s)
        assert len(self.model.pool) == len(self.model.reservations) == 1


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
