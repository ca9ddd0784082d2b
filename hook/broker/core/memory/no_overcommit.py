"""Memory requests on a node that does not overcommit: every line is granted in full, and no process waits.

A process still asks where its page was written by an earlier broker that did overcommit. The broker grants every such
request at once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from hook.broker.core.announcer import Announcer
from hook.broker.core.datagram import DatagramKind
from hook.broker.core.events import DatagramReceived, HeldRead
from hook.broker.core.ids import ContainerKey
from hook.broker.core.instructions import Instruction, Reply
from hook.broker.core.memory.arbiter import Step
from hook.broker.core.memory.histogram import WaitTimes
from plimsoll.broker.wire import ContainerLines, Line
from plimsoll.ids import GpuUuid, ProcessKey


class NoOvercommit:
    """The twin of `MemoryRequests`, with the same methods and no state."""

    is_anybody_waiting = False

    def requests(
        self,
        announcer: Announcer,
        set_limits: Callable[[Iterable[ContainerKey]], list[Instruction]],
    ) -> "NoOvercommit":
        """See `Overcommit.requests`."""
        return self

    def granted_bytes(self, container: ContainerKey, line: Line) -> int:
        """The whole line."""
        return line.line_bytes

    def is_wanted(self, gpu: GpuUuid) -> bool:
        """Always False."""
        return False

    def enrol(self, container: ContainerKey, lines: ContainerLines) -> list[Step]:
        """Nothing to do."""
        return []

    def leave(self, containers: Collection[ContainerKey], now_s: float) -> list[Instruction]:
        """Nothing to do."""
        return []

    def received(self, event: DatagramReceived, now_s: float) -> list[Instruction]:
        """Grant a request for memory; other datagrams need no instruction."""
        datagram = event.datagram
        if datagram.kind is not DatagramKind.WAIT or datagram.gpu is None:
            return []
        return [Reply(event.connection, datagram.gpu)]

    def connection_closed(self, connection: int, now_s: float, at_s: float) -> list[Instruction]:
        """Nothing to do."""
        return []

    def process_died(self, process: ProcessKey, now_s: float, at_s: float) -> list[Instruction]:
        """Nothing to do."""
        return []

    def measured(self, capacity: Mapping[GpuUuid, int], now_s: float) -> list[Instruction]:
        """Nothing to do."""
        return []

    def held_read(
        self,
        event: HeldRead,
        words: Mapping[ContainerKey, int],
        excess: Mapping[ContainerKey, int],
        now_s: float,
    ) -> list[Instruction]:
        """Nothing to do."""
        return []

    def read_held(self, gpus: Iterable[GpuUuid]) -> list[Instruction]:
        """Nothing to read."""
        return []

    def read_contended(self) -> list[Instruction]:
        """Nothing to read."""
        return []

    def waiting_count(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """Always 0."""
        return 0

    def waited(self, container: ContainerKey) -> WaitTimes:
        """Empty."""
        return WaitTimes()

    def carry(self, steps: Iterable[Step], now_s: float) -> list[Instruction]:
        """Nothing to do: `enrol` gives no steps."""
        return []
