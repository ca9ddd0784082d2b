"""What goes into the share scheduler (events) and what comes out (instructions).

All times are nanoseconds of CLOCK_MONOTONIC. Events come in the order of their moments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hook.broker.core.ids import ContainerKey
from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from plimsoll.ids import GpuUuid

Words = tuple[int, ...]
"""The words of `pages.Work` of one process: those of its container's first GPU, then of the second, and so on."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What one container was promised of each of its GPUs.

    Attributes:
        request_pct: compute time guaranteed, 0 to 100 (KubeShare's gpu_request).
        limit_pct: compute time at most, 1 to 100, never below the request (gpu_limit).
        whole: it owns its GPUs: it has no account, and its gate stays open.
    """

    gpus: tuple[GpuUuid, ...]
    request_pct: int
    limit_pct: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """A container was registered, or its terms changed; its GPUs never do.

    Attributes:
        word: the gate word in its file, from which the count of changes goes on. With changed terms it says nothing.
    """

    container: ContainerKey
    terms: Terms
    now_ns: int
    word: int = 0


@dataclass(frozen=True, slots=True)
class Left:
    """A container was removed."""

    container: ContainerKey
    now_ns: int


@dataclass(frozen=True, slots=True)
class Appeared:
    """A process owns a slot of a container.

    Attributes:
        number: by which ticks name it; never used twice.
        is_new: it came since the slots were last read, so all that its words say is of now. Else only what they gain.
    """

    container: ContainerKey
    number: int
    owner: int
    now_ns: int
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Gone:
    """A process is dead, or its slot has another owner: it wants nothing any more.

    Attributes:
        words: its page as it was found then; None where it could not be read.
    """

    number: int
    now_ns: int
    words: Words | None = None


@dataclass(frozen=True, slots=True)
class Ticked:
    """A tick of the clock.

    Attributes:
        now_ns: when the last of the pages had been read.
        pages: by process, each whole. One that is left out could not be read, or has nothing under way and nothing
            new.
    """

    now_ns: int
    pages: Mapping[int, Words]


@dataclass(frozen=True, slots=True)
class Utilised:
    """NVML's process utilisation on one GPU since the last such event, about a second ago.

    Attributes:
        used_pct: by process, exact to a point. One that used nothing may be left out.
    """

    gpu: GpuUuid
    now_ns: int
    used_pct: Mapping[int, float]


ShareEvent = Joined | Left | Appeared | Gone | Ticked | Utilised


class GateState(Enum):
    """As in `pages.Gate.word`."""

    OPEN = GATE_OPEN
    METERED = GATE_METERED
    SHUT = GATE_SHUT


@dataclass(frozen=True, slots=True)
class SetGate:
    """Write a container's gate, and wake the threads that wait on its word if that changed; see `pages.Gate`."""

    container: ContainerKey
    word: int
    sharers: int


@dataclass(frozen=True, slots=True)
class Unmet:
    """A container wanted compute time throughout a whole span and got less than its request.

    Attributes:
        gpu: where it got least.
        used_pct: what it got.
        span_s: how long the span was.
    """

    container: ContainerKey
    gpu: GpuUuid
    used_pct: float
    request_pct: int
    span_s: float


@dataclass(frozen=True, slots=True)
class ShareViolated:
    """NVML showed a process to use more of a GPU than its words say, over two spans in a row.

    Attributes:
        owner: the process, as its slot names it.
        used_pct: what NVML showed in the second span.
        told_pct: the most that its words can mean, in the same span.
    """

    container: ContainerKey
    owner: int
    gpu: GpuUuid
    used_pct: float
    told_pct: float


ShareInstruction = SetGate | Unmet | ShareViolated


@dataclass(frozen=True, slots=True)
class ShareUse:
    """What a container had of its GPUs' compute time, for metrics and the description; the mean over its GPUs.

    Attributes:
        state: its gate's; of a time when it was open nothing is known.
        used_pct: over the latest second or two.
        busy_s: time that the GPU worked for it, since it joined.
        waited_s: time in which a thread of it stood at its shut gate, likewise.
        waits: how many such times there were.
    """

    terms: Terms
    state: GateState
    used_pct: float = 0.0
    busy_s: float = 0.0
    waited_s: float = 0.0
    waits: int = 0
