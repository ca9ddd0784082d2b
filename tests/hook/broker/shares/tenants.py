"""Greedy containers on one GPU, for how long they are looked at, and how near to its part each comes."""

from typing import Final

from tests.hook.broker.shares.programs import greedy
from tests.hook.broker.shares.world import Container, World

SPAN_S: Final = 10.0
ACCURACY_PCT: Final = 2.0


def tenants(world: World, requests: tuple[int, ...], kernels_ns: tuple[int, ...]) -> list[Container]:
    """Greedy ones on one GPU."""
    containers = [world.join(f"c{n}", request) for n, request in enumerate(requests)]
    for container, kernel_ns in zip(containers, kernels_ns, strict=True):
        world.start(container, greedy(kernel_ns))
    return containers
