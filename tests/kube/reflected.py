"""The image that a reflector keeps, as texts that a test can compare, and a reflector that runs."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.kube.client import connect
from plimsoll.kube.models import Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Reflector, Synced, Timing
from tests.servers.tasks import running
from tests.servers.waiting import until

QUICK = Timing(
    read_deadline_s=30,  # longer than any machine stands still
    first_pause_s=0.02,
    longest_pause_s=0.05,
    healthy_after_s=0.05,
    live_after_s=0.05,
)


@dataclass(slots=True)
class Image:
    """A reflector's emitted changes as texts, and the pods that exist by these changes."""

    emitted: list[str] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)

    def take(self, change: Change[Pod]) -> None:
        """Apply one change, and check that it is consistent."""
        match change:
            case Added(item):
                assert item.metadata.uid not in self.pods
                self.pods[item.metadata.uid] = item
                self.emitted.append(f"+{item.metadata.uid.removeprefix('uid-')}")
            case Modified(item, old):
                assert self.pods[item.metadata.uid] == old
                self.pods[item.metadata.uid] = item
                self.emitted.append(f"~{item.metadata.uid.removeprefix('uid-')}")
            case Deleted(item):
                del self.pods[item.metadata.uid]
                self.emitted.append(f"-{item.metadata.uid.removeprefix('uid-')}")
            case Synced():
                self.emitted.append("synced")

    async def until(self, holds: Callable[[list[str]], bool]) -> None:
        """Wait until a condition holds for the emitted changes."""

        async def look() -> bool:
            return holds(self.emitted)

        await until(look)


@contextlib.asynccontextmanager
async def reflecting(
    kubeconfig: Path, timing: Timing = QUICK, path: str = "/api/v1/pods"
) -> AsyncIterator[Image]:
    """A running reflector of all pods."""
    image = Image()
    async with (
        connect(kubeconfig) as client,
        running(Reflector(client, path, Pod, image.take, timing=timing).run(), "reflector"),
    ):
        yield image
