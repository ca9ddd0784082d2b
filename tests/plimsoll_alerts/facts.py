"""A node's events, as its monitor publishes them: bodies that a test hands to the book, or to NATS."""

from itertools import count

from msgspec import UNSET

from plimsoll.bus.subjects import foreign_subject, limit_subject, state_subject
from plimsoll.envelope import encode
from plimsoll.events import Foreign, Gpu, Limit, NodeState, Phase, Report, Task
from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
POD, MAIN = PodUid("pod-1"), ContainerName("main")
TIME = "2026-01-01T00:00:00.500000Z"
GIB = 1 << 30


class Facts:
    """Builds the events of one node; each report has the next number."""

    def __init__(self, node: str = "node-1", heartbeat_s: float = 3600.0, epoch: int = 3) -> None:
        self.node = NodeName(node)
        self.heartbeat_s = heartbeat_s
        self.epoch = epoch
        self._numbers = count(1)

    def report(
        self,
        *tasks: Task,
        health: tuple[GpuHealth, ...] = (),
        short: tuple[GpuUuid, ...] = (),
        broker_away: bool = False,
        gpus: tuple[GpuUuid, ...] = (A, B),
        omitted: bool = False,
    ) -> bytes:
        """The node's state, with these tasks on their GPUs; or, `omitted`, an event without a state."""
        shown = tuple(
            Gpu(
                uuid=gpu,
                index=index,
                model="NVIDIA L4",
                usable_bytes=24 * GIB,
                used_bytes=0,
                idle_pct=50,
                tasks=tuple(task for task in tasks if task.gpu == gpu),
            )
            for index, gpu in enumerate(gpus)
        )
        seq = next(self._numbers)
        state = NodeState(
            node=self.node,
            epoch=self.epoch,
            seq=seq,
            time=TIME,
            gpus=() if omitted else shown,
            heartbeat_s=self.heartbeat_s,
            health=health,
            short=dict.fromkeys(short, TIME),
            broker_away_since=TIME if broker_away else None,
            omitted=omitted or UNSET,
        )
        return self._encoded("node.state", f"state-{self.epoch}-{seq}", Report(state=state))

    def limit(
        self,
        what: str,
        *,
        pid: int = 0,
        line_bytes: int = 0,
        gpu: GpuUuid | None = A,
        broker_away: bool = False,
        container: ContainerName = MAIN,
    ) -> bytes:
        """An event about a container's limit."""
        data = Limit(
            node=self.node,
            gpu=gpu,
            pod=POD,
            container=container,
            pid=pid,
            line_bytes=line_bytes,
            broker_away=broker_away,
        )
        return self._encoded(f"limit.{what}", f"{what}-{next(self._numbers)}", data)

    def foreign(self) -> bytes:
        """Another monitor has this node's name."""
        data = Foreign(
            node=self.node, epoch=self.epoch, gpus=(A,), foreign_epoch=9, foreign_gpus=(GpuUuid("GPU-z"),)
        )
        return self._encoded("node.foreign", f"foreign-{next(self._numbers)}", data)

    def subject(self, body: bytes) -> str:
        """The subject on which this event is published."""
        kind = body.partition(b'"type":"dev.plimsoll.')[2].partition(b'.v1"')[0].decode()
        if kind == "node.state":
            return state_subject(self.node)
        return foreign_subject(self.node) if kind == "node.foreign" else limit_subject(kind[6:], self.node)

    def _encoded(self, what: str, name: str, data: Report | Limit | Foreign) -> bytes:
        return encode(what, f"{self.node}-{name}", f"/nodes/{self.node}", TIME, data)


def task(pid: int = 71, used_bytes: int = GIB, gpu: GpuUuid = A, container: ContainerName = MAIN) -> Task:
    """A task of `POD`."""
    return Task(
        pid=pid,
        start_ticks=9,
        gpu=gpu,
        phase=Phase.LOADED,
        used_bytes=used_bytes,
        peak_bytes=used_bytes,
        pod=POD,
        container=container,
    )


def ill(gpu: GpuUuid = A, health: HealthClass = HealthClass.FATAL) -> GpuHealth:
    """A GPU that is not healthy."""
    condition = Condition(what="xid", health=health, since=TIME, text="XID 79: off the bus", xid=79)
    return GpuHealth(gpu=gpu, index=0, model="NVIDIA L4", health=health, since=TIME, conditions=(condition,))
