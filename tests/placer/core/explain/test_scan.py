"""The verdicts on all nodes: counts, pages, and the nearest nodes, all bounded."""

from hypothesis import given
from hypothesis import strategies as st

from placer.core.booking import Booking
from placer.core.explain.scan import PageAsked, Scan
from placer.core.plan import Plan
from plimsoll.ids import NodeName, PodUid
from plimsoll.placer_api.explain import CANDIDATES_SHOWN, NEAREST_SHOWN, NodeShortage, Waiting

names = st.lists(st.integers(0, 10_000).map(lambda i: NodeName(f"n{i}")), unique=True, max_size=200)
FIRST = PageAsked()
REASONS = ("Insufficient cpu", "Too many pods", "node(s) were not ready")


def reason_of(node: NodeName) -> str:
    """A node's only reason."""
    return REASONS[len(node) % 3]


def scanned(nodes: list[NodeName], asked: PageAsked = FIRST) -> Waiting:
    """The result for nodes without a place."""
    scan = Scan(asked)
    for node in nodes:
        scan.refuses(node, (reason_of(node), "another"))
        scan.lacks(float(node[1:]), NodeShortage(node=node, text=node))
    return scan.result(Waiting())


@given(names, st.integers(1, 50), st.sampled_from((None, *REASONS)), st.data())
def test_pages_cover_each_node_once(
    nodes: list[NodeName], limit: int, reason: str | None, data: st.DataObject
) -> None:
    """The pages together hold each node once, by name, though nodes come and go between two pages."""
    seen: list[NodeName] = []
    stayed = {node for node in nodes if reason in (None, reason_of(node))}
    more, present = "", list(nodes)
    while True:
        result = scanned(present, PageAsked(limit, more, reason))
        assert len(result.page) <= limit
        assert sum(one.nodes for one in result.reasons) == len(present)
        seen += [one.node for one in result.page]
        more = result.more
        if not more:
            break
        leaves = data.draw(st.booleans())
        if present and leaves:
            stayed.discard(present.pop())
    assert seen == sorted(set(seen))
    assert stayed <= set(seen) <= set(nodes)


@given(names)
def test_the_nearest_and_the_best_are_kept_whatever_their_order(nodes: list[NodeName]) -> None:
    """The least shortages and the best places of many nodes are kept."""
    expected = sorted(nodes, key=lambda node: (float(node[1:]), node))
    assert [one.node for one in scanned(nodes).nearest] == expected[:NEAREST_SHOWN]
    scan = Scan(PageAsked())
    for node in nodes:
        scan.fits(Plan(Booking(PodUid("p"), node, ()), "headroom", float(node[1:]), {}))
    best = sorted(nodes, key=lambda node: (-float(node[1:]), node))[:CANDIDATES_SHOWN]
    assert [one.node for one in scan.result(Waiting()).candidates] == best


def test_preemption_is_named_by_the_nearest_node_that_it_helps() -> None:
    """Also a node too far to be listed counts, if pods of lower priority hold enough there."""
    scan = Scan(PageAsked())
    for distance in range(20):
        helps = distance >= 15
        shortage = NodeShortage(node=NodeName(f"n{distance}"), lower_priority_suffices=helps, text="")
        scan.refuses(shortage.node, ("Insufficient cpu",))
        scan.lacks(distance, shortage)
    preemption = scan.result(Waiting()).preemption
    assert preemption is not None
    assert preemption.could_help
    assert "n15" in preemption.text
