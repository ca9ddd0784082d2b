"""The events that the core takes in.

Requests of the control socket (`plimsoll.broker.wire`) are events too, and so is what the share scheduler reports
(`UnmetSpan`, `Unheld`, `ShareOveruse`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hook.broker.core.datagram import Datagram
from hook.broker.core.ids import ContainerKey, Process, SlotUse
from hook.broker.core.shares.events import ShareOveruse, UnmetSpan
from plimsoll.broker.wire import Acknowledge, Measured, Register, Unregister
from plimsoll.ids import GpuUuid, ProcessKey


@dataclass(frozen=True, slots=True)
class DatagramReceived:
    """A process sent a datagram over its container's `hook.sock`.

    Attributes:
        connection: the number of the connection; no number is used twice.
        received_s: seconds of a clock that never goes back, when the datagram arrived.
    """

    container: ContainerKey
    process: Process
    datagram: Datagram
    connection: int = 0
    received_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection closed over which a process had asked to wait for memory.

    Attributes:
        at_s: seconds of a clock that never goes back.
    """

    connection: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Died:
    """A watched process is gone.

    Attributes:
        at_s: seconds of a clock that never goes back.
    """

    key: ProcessKey
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Answer to `Survey`.

    Attributes:
        slots: every claimed slot. They are read before the processes are searched for, so an owner that is neither in
            `living` nor in `elsewhere` is dead.
        living: the processes found by their owner word, whether the core knows them or not.
        dead: the processes of `Survey.known` that are gone.
        elsewhere: the living processes by owner word that surely do not map this `counts`. The word is what an exec
            left behind, or a tenant wrote the word of a process of somebody else.
    """

    container: ContainerKey
    slots: tuple[SlotUse, ...]
    living: Mapping[int, Process]
    dead: frozenset[ProcessKey] = frozenset()
    elsewhere: Mapping[int, Process] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WordsRead:
    """Answer to `ReadWords`: the claimed slots of each container, read after NVML was."""

    measured: Measured
    slots: Mapping[ContainerKey, tuple[SlotUse, ...]]


@dataclass(frozen=True, slots=True)
class HeldRead:
    """Answer to `ReadHeld`: the claimed slots of each container, read after all earlier instructions were written.

    Attributes:
        read_s: seconds of a clock that never goes back.
    """

    gpu: GpuUuid
    slots: Mapping[ContainerKey, tuple[SlotUse, ...]]
    read_s: float


@dataclass(frozen=True, slots=True)
class Unheld:
    """A process ran without a share of compute time between the end of an earlier broker and this broker's start."""

    container: ContainerKey
    process: ProcessKey


Event = (
    Register
    | Unregister
    | Acknowledge
    | Measured
    | DatagramReceived
    | ConnectionClosed
    | Died
    | UnmetSpan
    | Unheld
    | ShareOveruse
    | Surveyed
    | WordsRead
    | HeldRead
)
