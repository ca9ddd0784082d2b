"""A node that was deleted while its monitor reports on is called placeable by no command and by no page."""

import msgspec

from placer.api.node_rows import NodeRows, RowFilter
from placer.core.schedulability import ABSENT
from placer.live.rows import LiveRows
from plimsoll.ids import NodeName
from plimsoll.placer_api.http import NodeRow
from plimsoll.placer_api.live import LiveNode
from plimsoll_cli import gpus, nodes
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.scene import scene


async def test_a_deleted_node_says_so_until_it_comes_back() -> None:
    """Its report has room, and `nodes`, `gpus`, the page and `top` say that Kubernetes knows no such node."""
    async with scene() as here:
        here.decider.pool.absent = ABSENT  # as with a cluster
        rows = NodeRows(here.decider)
        live = LiveRows(here.decider, lambda _: None)

        async def said() -> list[tuple[str, ...]]:
            page = await rows.nodes(RowFilter(), "", 10)
            [row] = [msgspec.json.decode(one, type=NodeRow) for one in page.rows]
            shown = live.row(NodeName("n1"))
            assert shown is not None
            texts = [*nodes.shown([row]), *gpus.shown([row])]
            assert all(
                ("unknown to Kubernetes" in line) == bool(row.closed) for line in (texts[1], texts[-1])
            )
            return [row.closed, msgspec.json.decode(shown, type=LiveNode).closed]

        here.node("n1")
        here.report("n1", 20)
        assert await said() == [(), ()]
        here.remove_node("n1")
        here.report("n1", 21)
        assert await said() == [("unknown to Kubernetes",)] * 2
        here.show(here.pod("p", {MEMORY: "1Gi"}))
        await here.settle()
        assert not here.is_placed("p")
        here.node("n1")
        assert await said() == [(), ()]
        await here.settle()
        assert here.is_placed("p")
