"""What goes into the core (events) and what comes out (instructions).

`plimsoll.broker.wire`'s requests are events too, and so is what the share scheduler has to tell (`Unmet`, `Unheld`,
`ShareViolated`). Instructions are carried out in their order, those for files before those for the loop; every one
may be repeated without harm, as a broker killed in the middle of a turn decides the same again after its restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from hook.broker.core.codec import Numbers
from hook.broker.core.datagram import Datagram
from hook.broker.core.ids import ContainerKey, Process, ProcessKey, SlotUse
from hook.broker.core.journal import JournalLine
from hook.broker.core.shares.events import ShareViolated, Unmet
from plimsoll.broker.wire import Acknowledge, Announcement, ContainerLines, Measured, Register, Unregister
from plimsoll.ids import GpuUuid, PodUid


@dataclass(frozen=True, slots=True)
class Heard:
    """A process said something over its container's `hook.sock`.

    Attributes:
        connection: the number of the connection that it came over; never used twice.
        heard_s: when, by a clock that never goes back.
    """

    container: ContainerKey
    process: Process
    datagram: Datagram
    connection: int = 0
    heard_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HungUp:
    """A connection ended over which a process had asked to wait."""

    connection: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Died:
    """A watched process is gone."""

    key: ProcessKey
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Answer to `Survey`.

    Attributes:
        slots: every claimed slot, read before the processes were looked for: an owner of one of them that
            is not in `living` is dead.
        living: by owner word: the processes found, known or not.
        dead: those of `Survey.known` that are gone.
    """

    container: ContainerKey
    slots: tuple[SlotUse, ...]
    living: Mapping[int, Process]
    dead: frozenset[ProcessKey] = frozenset()


@dataclass(frozen=True, slots=True)
class WordsRead:
    """Answer to `ReadWords`: the claimed slots of each container, read after NVML was."""

    measured: Measured
    slots: Mapping[ContainerKey, tuple[SlotUse, ...]]


@dataclass(frozen=True, slots=True)
class HeldRead:
    """Answer to `ReadHeld`: the claimed slots of each container, read after all that came before it was written."""

    gpu: GpuUuid
    slots: Mapping[ContainerKey, tuple[SlotUse, ...]]
    read_s: float


@dataclass(frozen=True, slots=True)
class Unheld:
    """A process that an earlier broker held to its share of compute time came to this one, and ran freely between."""

    container: ContainerKey
    process: ProcessKey


Event = (
    Register
    | Unregister
    | Acknowledge
    | Measured
    | Heard
    | HungUp
    | Died
    | Unmet
    | Unheld
    | ShareViolated
    | Surveyed
    | WordsRead
    | HeldRead
)


class Record(Struct, frozen=True, kw_only=True):
    """What `record.json` keeps of a pod.

    Attributes:
        leaving: unregistered, and waiting for its last process to end.
    """

    pod: Register
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class LayOut:
    """Make a container's directories, `limits`, `counts` and socket where missing; bring `limits` up to date.

    Attributes:
        numbers: what stands beside each line.
        clear_counts: nothing in `counts` can be true any more (the machine was booted since).
    """

    container: ContainerKey
    lines: ContainerLines
    numbers: Numbers
    clear_counts: bool = False


@dataclass(frozen=True, slots=True)
class SetLimits:
    """Bring the `limits` of a container that was laid out up to date."""

    container: ContainerKey
    lines: ContainerLines
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """Write a pod's `record.json`."""

    record: Record


@dataclass(frozen=True, slots=True)
class ClearSlots:
    """Zero every slot of an owner in a container whose memory is gone: its counts first, the owner last."""

    container: ContainerKey
    owner: int


@dataclass(frozen=True, slots=True)
class VacateSlots:
    """Clear the slots of a living owner if it became a program that does not map `counts`; else leave them."""

    container: ContainerKey
    process: Process


@dataclass(frozen=True, slots=True)
class Survey:
    """Read a container's slots, then look for their owners and for the known processes."""

    container: ContainerKey
    known: frozenset[ProcessKey]


@dataclass(frozen=True, slots=True)
class ReadWords:
    """Read these containers' slots, to be held against a measurement."""

    measured: Measured
    containers: tuple[ContainerKey, ...]


@dataclass(frozen=True, slots=True)
class SaveContexts:
    """Keep what a context costs, per GPU, for the next broker on this node."""

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
class Report:
    """Something for the log that an operator should know.

    Attributes:
        container: whose programs caused it; None where it is about the node.
    """

    event: str
    details: Mapping[str, str | int] = field(default_factory=dict)
    container: ContainerKey | None = None


@dataclass(frozen=True, slots=True)
class ReadHeld:
    """Read the slots of these containers, all that have a line on this GPU."""

    gpu: GpuUuid
    containers: tuple[ContainerKey, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell one that asked to wait to go on, or why it must not wait.

    Attributes:
        refusal: empty where it is granted.
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
    | Report
)
