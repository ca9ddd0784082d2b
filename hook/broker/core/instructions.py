"""The instructions that the core gives out.

The engine carries them out in their order: those for files come before those for the event loop. Every instruction
may be repeated without harm, because a broker that is killed in the middle of a turn decides the same again after its
restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hook.broker.core.codec import Numbers
from hook.broker.core.ids import ContainerKey, Process, SlotMeasured
from hook.broker.core.journal import JournalLine
from hook.broker.core.registration import PodRecord
from plimsoll.broker.announcements import Announcement
from plimsoll.broker.wire import Acknowledge, ContainerLines, Measured
from plimsoll.ids import GpuUuid, PodUid, ProcessKey


@dataclass(frozen=True, slots=True)
class LayOut:
    """Make a container's directories, `limits`, `counts` and socket where missing; bring `limits` up to date.

    Attributes:
        numbers: the changing numbers beside each line.
        clear_counts: zero `counts` too: the machine was booted since, so every process of before is dead.
    """

    container: ContainerKey
    lines: ContainerLines
    numbers: Numbers
    clear_counts: bool = False


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Write these numbers into the `limits` of a container that was laid out.

    Attributes:
        measured: the slots of `measured` that change with them.
    """

    container: ContainerKey
    lines: ContainerLines
    numbers: Numbers
    measured: tuple[SlotMeasured, ...] = ()


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """Write a pod's `record.json`."""

    record: PodRecord


@dataclass(frozen=True, slots=True)
class ClearSlots:
    """Zero every slot of an owner whose memory is gone: the counts first, the owner word last."""

    container: ContainerKey
    owner: int


@dataclass(frozen=True, slots=True)
class VacateSlots:
    """Clear the slots of a living process that does not map `counts`, because of an exec or because it never did."""

    container: ContainerKey
    process: Process


@dataclass(frozen=True, slots=True)
class Survey:
    """Read a container's slots. Then search `/proc` for their owners and for the known processes."""

    container: ContainerKey
    known: frozenset[ProcessKey]


@dataclass(frozen=True, slots=True)
class ReadWords:
    """Read the slots of these containers, to compare them with a measurement.

    Attributes:
        strays: the measured processes that sent no hello, and whose cgroup names no pod. Their pods are searched for.
        runners: each process whose descendants belong to a pod.
    """

    measured: Measured
    containers: tuple[ContainerKey, ...]
    strays: frozenset[ProcessKey] = frozenset()
    runners: Mapping[ProcessKey, PodUid] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SaveContexts:
    """Save the cost of a context, in bytes per GPU, for the next broker on this node."""

    context_bytes: Mapping[GpuUuid, int]


@dataclass(frozen=True, slots=True)
class RemovePod:
    """Remove a pod's directories, record and sockets."""

    pod: PodUid
    containers: tuple[ContainerKey, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """Add a line to the journal file."""

    line: Announcement | Acknowledge


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace the journal file."""

    lines: tuple[JournalLine, ...]


@dataclass(frozen=True, slots=True)
class Watch:
    """Report the death of this process, at once if it is gone already."""

    key: ProcessKey


@dataclass(frozen=True, slots=True)
class LogWarning:
    """A log line for the operator.

    Attributes:
        event: the name of the log event.
        container: the container whose programs caused the line; None for a line about the node.
    """

    event: str
    details: Mapping[str, str | int] = field(default_factory=dict)
    container: ContainerKey | None = None


@dataclass(frozen=True, slots=True)
class ReadHeld:
    """Read the slots of these containers: every container that has a line on this GPU."""

    gpu: GpuUuid
    containers: tuple[ContainerKey, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a process that asked to wait for memory.

    Attributes:
        refusal: the reason why it must not wait; empty where the request is granted.
    """

    connection: int
    gpu: GpuUuid
    refusal: str = ""


Instruction = (
    LayOut
    | SetLimits
    | SaveRecord
    | ClearSlots
    | VacateSlots
    | Survey
    | ReadWords
    | SaveContexts
    | ReadHeld
    | RemovePod
    | Append
    | Rewrite
    | Watch
    | Reply
    | LogWarning
)
