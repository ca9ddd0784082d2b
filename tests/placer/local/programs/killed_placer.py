"""A placer of one node that places one pod, prints its id, and lives until it is killed.

Its argument is JSON: where the node's broker and the pods' output are, and the pods' environment.
"""

import asyncio
import json
import sys
from pathlib import Path

from placer.core.ledger import Ledger
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.local.node import LocalNode
from placer.metrics import Metrics
from plimsoll.ids import NodeName
from tests.placer.local.world import World, idle_report, placed, pod


async def main() -> None:
    """Places the pod."""
    told = json.loads(sys.argv[1])
    node = LocalNode(NodeName("n1"), Path(told["socket"]), told["environment"], Path(told["output"]))
    here = World((node,), Decider(ReportView(), Ledger(), Metrics()))
    here.tell(idle_report("n1"))
    async with here.front_end() as front_end:
        row = await placed(front_end, pod("survivor", ["sleep", "1000"], "20Gi"))
        sys.stdout.write(f"{row.uid}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


asyncio.run(main())
