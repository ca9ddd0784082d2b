"""Lines, shares and limits that changed under running containers, and the announcement that they hold now.

What always holds: a new line is announced after it stands in `limits`, with what the container holds by its words
read after that; and before it stands in the pod's record, so that a broker killed in between finds the old line in
the record, is told of the new one again, and announces it then. Twice is possible, never not at all.
"""

from hook.broker.core.announcer import NOBODY, Announcer, Told
from hook.broker.core.ids import ContainerKey
from hook.broker.core.turns import Instruction, Surveyed
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.quantity import format_bytes


class Resizes:
    """Changed lines that were not announced yet; usually none, or those of the turn under way."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._changed: dict[ContainerKey, set[GpuUuid]] = {}

    def note(self, old: Register, new: Register) -> None:
        """A pod is registered anew; containers and GPUs are those of before, and perhaps more."""
        before = {
            (container.name, line.gpu): line for container in old.containers for line in container.lines
        }
        for container in new.containers:
            for line in container.lines:
                if before.get((container.name, line.gpu), line) != line:
                    key = ContainerKey(new.pod, container.name)
                    self._changed.setdefault(key, set()).add(line.gpu)

    def of(self, pod: PodUid) -> list[ContainerKey]:
        """The pod's containers with changes to be announced."""
        return sorted(container for container in self._changed if container.pod == pod)

    @property
    def containers(self) -> frozenset[ContainerKey]:
        """Every container with changes to be announced."""
        return frozenset(self._changed)

    def forget(self, pod: PodUid) -> None:
        """The pod is gone."""
        for container in self.of(pod):
            del self._changed[container]

    def surveyed(self, event: Surveyed, lines: ContainerLines, now_s: float) -> list[Instruction]:
        """Announce a container's changes; its lines were laid out before these slots were read."""
        changed = self._changed.pop(event.container, set())
        instructions: list[Instruction] = []
        for place, line in enumerate(lines.lines):
            if line.gpu in changed:
                told = _told(line, _used_bytes(event, place))
                instructions += self._announcer.announce(event.container, NOBODY, "resized", now_s, told)
        return instructions


def _used_bytes(event: Surveyed, place: int) -> int:
    return sum(
        slot.used_bytes[place]
        for slot in event.slots
        if slot.owner in event.living and place < len(slot.used_bytes)
    )


def _told(line: Line, used_bytes: int) -> Told:
    return Told(
        gpu=line.gpu,
        used_bytes=used_bytes,
        line_bytes=line.line_bytes,
        text=_text(used_bytes, line.line_bytes),
        share_pct=line.share_pct,
        limit_pct=line.limit_pct,
    )


def _text(used_bytes: int, line_bytes: int) -> str:
    if used_bytes <= line_bytes:
        return ""
    return f"holds {format_bytes(used_bytes)} now: growth is refused until it is below"
