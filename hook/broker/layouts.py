"""The layout of each pod of this node: whether its lines are laid out, or why they are not.

The follower of pods writes it, and the volume service waits for it; for the loop's thread only.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from plimsoll.ids import ContainerName, PodUid


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The pod's lines are laid out.

    Attributes:
        containers: its containers with GPUs.
    """

    containers: tuple[ContainerName, ...]


@dataclass(frozen=True, slots=True)
class RefusedLayout:
    """The pod's lines cannot be laid out.

    Attributes:
        problem: the reason.
        may_pass: another pod's end, or free space on the disk, may lift the reason.
    """

    problem: str
    may_pass: bool


@dataclass(frozen=True, slots=True)
class WithoutGpus:
    """The pod asks for no GPU, so it has no lines."""


Layout = LaidOut | RefusedLayout | WithoutGpus
WITHOUT_GPUS: Final = WithoutGpus()


class Layouts:
    """The layouts of all pods that the watch shows.

    Attributes:
        is_synced: a whole list of the node's pods was taken in.
    """

    def __init__(self) -> None:
        """Begin without a pod."""
        self.is_synced = False
        self._known: dict[PodUid, Layout] = {}
        self._changed = asyncio.Event()

    def note(self, pod: PodUid, layout: Layout) -> None:
        """Take a pod's layout in place of the last one."""
        if self._known.get(pod) != layout:
            self._known[pod] = layout
            self._changed.set()
            self._changed = asyncio.Event()

    def forget(self, pod: PodUid) -> None:
        """Forget a pod that ended or is gone."""
        self._known.pop(pod, None)

    async def settled(self, pod: PodUid, longest_s: float) -> Layout | None:
        """Wait until a pod's layout is final: its lines are laid out, or cannot be.

        Args:
            pod: any pod.
            longest_s: seconds after which the layout of that moment is returned.
        """
        try:
            async with asyncio.timeout(longest_s):
                while not _is_final(self._known.get(pod)):
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self._known.get(pod)


def _is_final(layout: Layout | None) -> bool:
    return layout is not None and not (isinstance(layout, RefusedLayout) and layout.may_pass)
