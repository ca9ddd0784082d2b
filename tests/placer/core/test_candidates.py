"""Decisions over ranked candidates answer as a plan over all nodes does, however promises and reports change."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies import POLICIES
from placer.core.policy_context import Request
from placer.core.refusal import Refusal
from placer.core.room import room_on
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.events import Gpu, NodeState
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.locality import Locality
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import best_effort, declared, gpu, init, percent, plan, state, task, whole
from tests.slow import examples

NODES = ("a", "b", "c")
GPUS = 3
MODELS = ("NVIDIA L4", "NVIDIA A100")


def decider(*states: NodeState) -> Decider:
    """A decider over these reports."""
    reports, ledger = ReportView(), Ledger()
    made = Decider(reports, ledger, Metrics())
    for one in states:
        reports.apply(one)
    return made


containers = st.one_of(
    st.builds(whole, st.just("x"), st.integers(1, 3)),
    st.builds(best_effort, st.just("x")),
    st.builds(
        declared,
        st.just("x"),
        st.sampled_from([0.5, 1, 2, 3, 4, 6, 8, 12, 13]),
        st.sampled_from([0, 10, 50, 100]),
        st.integers(1, 3),
    ),
    st.builds(
        percent,
        st.just("x"),
        st.sampled_from([1, 7, 33, 50, 67, 99, 100]),
        st.sampled_from([0, 10, 50]),
        st.integers(1, 2),
    ),
)
lifespans = st.sampled_from([None, None, None, False, True])
"""The kind of a container: None for an ordinary one, otherwise whether the init container is a sidecar."""


def pod_of(found: list[tuple[ContainerDemand, bool | None]]) -> tuple[ContainerDemand, ...]:
    """The containers, named by their place, with these lifespans."""
    named = [(replace(one, container=ContainerName(f"c{n}")), kind) for n, (one, kind) in enumerate(found)]
    return tuple(
        one if kind is None else init(one, place, sidecar=kind) for place, (one, kind) in enumerate(named)
    )


labels = st.sampled_from([None, None, None, "ns/a", "ns/b"])


def supported(demand: PodDemand) -> PodDemand:
    """The demand without an affinity label where a container wants several GPUs."""
    if all(one.gpus == 1 for one in demand.containers):
        return demand
    return replace(demand, locality=replace(demand.locality, affinity=None))


demands = st.builds(
    PodDemand,
    st.lists(st.tuples(containers, lifespans), min_size=1, max_size=4).map(pod_of),
    gpu_id=st.sampled_from([None] * 9 + [GpuUuid("GPU-a-0"), GpuUuid("GPU-nowhere")]),
    gpu_models=st.sampled_from([(), (), (), (), (), MODELS[:1], MODELS[1:], MODELS]),
    locality=st.builds(Locality, labels, labels, labels),
).map(supported)
tasks = st.lists(
    st.tuples(
        st.sampled_from([None, "p0", "p1", "p2", "p3", "p4"]), st.sampled_from([100 * MIB, 2 * GIB, 5 * GIB])
    ),
    max_size=2,
)
gpus = st.tuples(
    st.sampled_from([0.0, 50.0, 100.0]), st.sampled_from([8, 12]), st.sampled_from([1.0, 1.5]), tasks
)


@dataclass
class Model:
    """A decider, and a plan over all nodes beside it."""

    decider: Decider = field(default_factory=decider)
    seqs: Counter[str] = field(default_factory=Counter)

    def report(self, node: str, found: list[tuple[float, int, float, list[tuple[str | None, int]]]]) -> None:
        """Report a node's GPUs."""
        self.seqs[node] += 1
        reported = tuple(self._gpu(f"GPU-{node}-{n}", n, *one) for n, one in enumerate(found))
        self.decider.reports.apply(state(node, *reported, seq=self.seqs[node]))

    def _gpu(
        self, uuid: str, index: int, idle: float, gib: int, ratio: float, held: list[tuple[str | None, int]]
    ) -> Gpu:
        running = tuple(task(pod, uuid, used) for pod, used in held)
        made = gpu(uuid, *running, idle_pct=idle, usable_gib=gib, ratio=ratio)
        return Gpu(
            uuid=made.uuid,
            index=index,
            model=MODELS[gib == 12],
            usable_bytes=made.usable_bytes,
            used_bytes=made.used_bytes,
            idle_pct=idle,
            overcommit_ratio=ratio,
            tasks=running,
        )

    def expected(self, wanted: Request, policy: str, unfit: frozenset[str]) -> Plan | Refusal:
        """The plan over all nodes, without ranked candidates."""
        views = [view for node in self.decider.reports if (view := self.decider.reports.view(node))]
        return plan(wanted, views, self.decider.ledger, POLICIES[policy], lambda node: _fit(node, unfit))

    def check_rooms(self) -> None:
        """Each room that is kept equals the room computed anew."""
        for node in self.decider.reports:
            found = self.decider.candidates.find(node)
            assert found is not None
            assert found.rooms == {
                one.uuid: room_on(node, one, self.decider.ledger) for one in found.node.gpus
            }


def _fit(node: NodeName, unfit: frozenset[str]) -> tuple[str, ...]:
    return ("unfit",) if node in unfit else ()


placing = st.tuples(
    st.just("place"),
    demands,
    st.sampled_from(sorted(POLICIES)),
    st.frozensets(st.sampled_from(NODES), max_size=2),
)
steps = st.lists(
    st.one_of(
        placing,
        placing,
        placing,
        st.tuples(st.just("report"), st.sampled_from(NODES), st.lists(gpus, max_size=GPUS)),
        st.tuples(st.just("gone"), st.sampled_from(NODES)),
        st.tuples(st.just("forget"), st.integers(0, 24)),
        st.tuples(st.just("restore"), st.integers(0, 24), st.sampled_from(NODES), st.integers(0, 2)),
    ),
    min_size=3,
    max_size=25,
)


@given(st.lists(st.lists(gpus, min_size=1, max_size=GPUS), min_size=1, max_size=3), steps)
@settings(max_examples=examples(500), deadline=None)
def test_candidates_decide_as_a_plan_over_all_nodes(
    first: list[list[tuple[float, int, float, list[tuple[str | None, int]]]]], then: list[tuple[Any, ...]]
) -> None:
    """For any bookings, ends and reports, the score is that of the best plan, and a refusal that of all nodes."""
    model = Model()
    for node, found in zip(NODES, first, strict=False):
        model.report(node, found)
    for number, step in enumerate(then):
        match step:
            case ("report", node, found):
                model.report(node, found)
            case ("gone", node):
                model.decider.reports.forget(NodeName(node))
            case ("forget", pod):
                model.decider.ledger.forget(PodUid(f"p{pod}"))
            case ("restore", pod, node, index):
                grant = Grant(
                    ContainerName("c"),
                    GpuUuid(f"GPU-{node}-{index}"),
                    9 * GIB,
                    60,
                    100,
                    whole=False,
                    line_bytes=3 * GIB,
                )
                model.decider.ledger.restore(Booking(PodUid(f"p{pod}"), NodeName(node), (grant,), "owner"))
            case ("place", demand, policy, unfit):
                pod = PodUid(f"p{number}")
                model.decider.ledger.forget(pod)
                wanted = Request(pod, demand, owner=f"owner{number % 2}")
                expected = model.expected(wanted, policy, unfit)
                decided = model.decider.decide(wanted, POLICIES[policy], lambda node: _fit(node, unfit))
                assert type(decided) is type(expected)
                if isinstance(decided, Plan) and isinstance(expected, Plan):
                    assert decided.score == expected.score
        model.check_rooms()


def test_a_policy_that_ranks_in_parts_misses_no_change() -> None:
    """Reports, bookings and nodes that come and go between two parts end in the order of a ranking made at once."""
    names = [f"n{number}" for number in range(12)]
    policy, request = POLICIES["binpack"], Request(PodUid("p"), PodDemand((declared("x", 1.0),)))
    parts = decider(*(state(name, gpu(f"GPU-{name}")) for name in names))
    parts.candidates.refresh()
    for number, name in enumerate(names):
        assert parts.candidates.rank(policy, 1) == (number + 1 == len(names))
        for other in (names[0], names[6], names[-1]):
            parts.reports.apply(
                state(other, gpu(f"GPU-{other}", other_bytes=(number + 1) * MIB), seq=number + 2)
            )
        parts.reports.forget(NodeName(names[7 if number % 2 else 2]))
        parts.reports.apply(state(names[7], gpu(f"GPU-{names[7]}"), seq=number + 2))
        grant = Grant(ContainerName("x"), GpuUuid(f"GPU-{name}"), GIB, 1, 100, whole=False, line_bytes=GIB)
        parts.ledger.book(Booking(PodUid(name), NodeName(name), (grant,)))
        parts.candidates.refresh()
    whole_one = decider(*parts.reports.values())
    for booking in parts.ledger.bookings():
        whole_one.ledger.book(booking)
    found = [
        [(one.node.node, one.score_bound) for one in made.candidates.best_first(request, policy)]
        for made in (parts, whole_one)
    ]
    assert found[0] == found[1]
    assert len(found[0]) >= len(names) - 1
