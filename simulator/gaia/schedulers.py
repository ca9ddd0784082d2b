"""The schedulers that are compared: each chooses GPUs of one node by its state, and breaks ties by seed.

* `gaia`: the access cost tree as printed (`simulator.gaia.tree`), in the paper's order of levels.
* `topology`: the placer's own policy and planner, as a decision calls them.
* `kubernetes`: any GPUs that are whole and free. The device plugin's API promises no order. A pod cannot ask for a
  part of a GPU, so this scheduler gives none.
"""

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies.topology import TOPOLOGY
from placer.core.policy_context import Request
from placer.core.topology.hardware import linked
from placer.core.topology.links import LinkMatrix
from placer.core.view import GpuView, NodeView
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB
from simulator.gaia.tree import WHOLE_PCT, Free, LevelOrder, access_tree, schedule

Choose = Callable[[], tuple[int, ...]]
"""Makes one decision: the numbers of the GPUs in rising order; none where the container has no place."""

Prepare = Callable[[LinkMatrix, Free, int, random.Random], Choose]
"""Gives the decision on a node with these links, in this state, for this many percent of a GPU."""

MEMORY_BYTES: Final = 8 * GIB
"""The memory of the paper's Tesla P4."""

_NODE: Final = NodeName("node")
_MAIN: Final = ContainerName("main")


def _gaia(matrix: LinkMatrix, free_pct: Free, asked_pct: int, chance: random.Random) -> Choose:
    tree = access_tree(matrix, LevelOrder.PAPER)
    return lambda: schedule(tree, free_pct, asked_pct, chance.choice)


def _kubernetes(matrix: LinkMatrix, free_pct: Free, asked_pct: int, chance: random.Random) -> Choose:
    count = asked_pct // WHOLE_PCT

    def choose() -> tuple[int, ...]:
        free = [gpu for gpu in range(len(matrix)) if free_pct[gpu] == WHOLE_PCT]
        return tuple(sorted(chance.sample(free, count))) if count <= len(free) else ()

    return choose


def _topology(matrix: LinkMatrix, free_pct: Free, asked_pct: int, chance: random.Random) -> Choose:
    order = chance.sample(range(len(matrix)), len(matrix))  # the planner takes the first of equals
    gpus = {number: _view(number) for number in order}
    node = NodeView(
        _NODE, (1, 1), tuple(gpus.values()), hardware=linked([_uuid(n) for n in range(len(matrix))], matrix)
    )
    ledger = _ledger(free_pct)
    request = Request(PodUid("asking"), PodDemand((demand(asked_pct),)))

    def choose() -> tuple[int, ...]:
        planned = plan_on(request, node, ledger, TOPOLOGY)
        return tuple(sorted(map(_number, planned.gpus[_MAIN]))) if isinstance(planned, Plan) else ()

    return choose


SCHEDULERS: Final[Mapping[str, Prepare]] = MappingProxyType(
    {"gaia": _gaia, "topology": _topology, "kubernetes": _kubernetes}
)


def demand(asked_pct: int) -> ContainerDemand:
    """The demand for a part of a GPU, memory and compute time alike, or for whole GPUs."""
    if asked_pct >= WHOLE_PCT:
        return ContainerDemand(_MAIN, asked_pct // WHOLE_PCT, None, 0, 100, whole=True)
    return ContainerDemand(_MAIN, 1, MEMORY_BYTES * asked_pct // 100, asked_pct, 100, whole=False)


def _ledger(free_pct: Free) -> Ledger:
    """The bookings that leave this much of each GPU."""
    ledger = Ledger()
    for number, free in enumerate(free_pct):
        if free < WHOLE_PCT:
            taken = WHOLE_PCT - free
            is_whole = taken == WHOLE_PCT
            grant = Grant(
                container=_MAIN,
                gpu=_uuid(number),
                memory_bytes=None if is_whole else MEMORY_BYTES * taken // 100,
                share_pct=taken,
                limit_pct=100,
                whole=is_whole,
                line_bytes=MEMORY_BYTES * taken // 100,
            )
            ledger.restore(Booking(PodUid(f"on-{number}"), _NODE, (grant,)))
    return ledger


def _view(number: int) -> GpuView:
    return GpuView(_uuid(number), "Tesla P4", MEMORY_BYTES, 0, 100.0, 1.0, {})


def _uuid(number: int) -> GpuUuid:
    return GpuUuid(f"gpu{number}")


def _number(gpu: GpuUuid) -> int:
    return int(gpu.removeprefix("gpu"))
