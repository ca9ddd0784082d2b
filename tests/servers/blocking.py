"""A call that blocks the event loop fails the test in which it happens.

Only the parts are watched, not the tests themselves: a test may read a file, a part may not, since its
heartbeats and watches stand still meanwhile. A part blocks on a thread (`asyncio.to_thread`) instead. Each
exception below has its reason; there is no way to switch the watch off.
"""

from collections.abc import Callable, Iterator

import pytest
from blockbuster import BlockBuster, BlockBusterFunction

PARTS = ["plimsoll", "plimsoll_alerts", "plimsoll_cli", "monitor", "placer", "solo", "hook"]
# The kernel answers from memory. No device is involved, and a thread would cost more than the read.
IN_MEMORY = ("/proc/", "/sys/", "/dev/shm/")  # noqa: S108 - compared with, never created
READS = ("io.TextIOWrapper.read", "io.BufferedReader.read", "os.listdir")


def or_in_memory(allowed: Callable[..., bool]) -> Callable[..., bool]:
    """Allow the calls of `allowed`, and reads of files and folders that the kernel generates on demand."""

    def allows(file: object = "", *arguments: object, **options: object) -> bool:
        name = str(getattr(file, "name", file))
        return name.startswith(IN_MEMORY) or allowed(file, *arguments, **options)

    return allows


def excuse(function: BlockBusterFunction) -> None:
    """Let `function` read files that lie in memory."""
    function.can_block_predicate = or_in_memory(function.can_block_predicate)


@pytest.fixture(autouse=True)
def blocking_calls_fail() -> Iterator[None]:
    """Make blocking calls from a part on a running event loop raise `blockbuster.BlockingError`."""
    watch = BlockBuster(PARTS)
    for name in READS:
        excuse(watch.functions[name])
    watch.activate()
    try:
        yield
    finally:
        watch.deactivate()
