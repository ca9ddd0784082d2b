"""Lines, shares and share limits that changed under running containers, and the announcement that they hold now.

What always holds: a new line is announced after it was written to `limits`, with the bytes that the container holds
by a later reading of its words. It is announced before it is written to the pod's record. If the broker is killed in
between, the record holds the old line; the pod is registered again, and the next broker announces the new line. So a
change may be announced twice, but is never missed.
"""

from hook.broker.core.announcer import Announcer, about
from hook.broker.core.events import Surveyed
from hook.broker.core.ids import ContainerKey
from hook.broker.core.instructions import Instruction
from plimsoll.broker.announcements import Resized
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.quantity import format_bytes


class Resizes:
    """Changed lines that were not announced yet; usually none, or those of the current turn."""

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._changed: dict[ContainerKey, set[GpuUuid]] = {}

    def note(self, old: Register, new: Register) -> None:
        """Note the changes of a pod that is registered again, with the same containers and GPUs or more."""
        before = {
            (container.name, line.gpu): line for container in old.containers for line in container.lines
        }
        for container in new.containers:
            for line in container.lines:
                if before.get((container.name, line.gpu), line) != line:
                    key = ContainerKey(new.pod, container.name)
                    self._changed.setdefault(key, set()).add(line.gpu)

    def of(self, pod: PodUid) -> list[ContainerKey]:
        """The pod's containers whose changes are not announced yet."""
        return sorted(container for container in self._changed if container.pod == pod)

    @property
    def containers(self) -> frozenset[ContainerKey]:
        """Every container whose changes are not announced yet."""
        return frozenset(self._changed)

    def forget(self, pod: PodUid) -> None:
        """Forget a pod that was removed."""
        for container in self.of(pod):
            del self._changed[container]

    def surveyed(self, event: Surveyed, lines: ContainerLines, now_s: float) -> list[Instruction]:
        """Announce a container's changes. Its lines were written before these slots were read."""
        changed = self._changed.pop(event.container, set())
        instructions: list[Instruction] = []
        for place, line in enumerate(lines.lines):
            if line.gpu in changed:
                resized = _resized(event.container, line, _used_bytes(event, place))
                instructions += self._announcer.announce(resized, now_s)
        return instructions


def _used_bytes(event: Surveyed, place: int) -> int:
    return sum(
        slot.used_bytes[place]
        for slot in event.slots
        if slot.owner in event.living and place < len(slot.used_bytes)
    )


def _resized(container: ContainerKey, line: Line, used_bytes: int) -> Resized:
    return Resized(
        **about(container),
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
