"""The events that go into the share scheduler, and the instructions that come out.

All times are nanoseconds of the machine's clock (`plimsoll.part.clock`). Events come in the order of their times.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hook.broker.core.ids import ContainerKey
from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from plimsoll.ids import GpuUuid

Words = tuple[int, ...]
"""A process's words of `pages.Work`: for its container's first GPU, then for the second, and so on."""


@dataclass(frozen=True, slots=True)
class ShareTerms:
    """The share that a container was promised of each of its GPUs.

    Attributes:
        request_pct: guaranteed compute time, 0 to 100 (KubeShare's gpu_request).
        limit_pct: the most compute time, 1 to 100, never below the request (KubeShare's gpu_limit).
        whole: the container owns its GPUs: it has no account, and its gate stays open.
    """

    gpus: tuple[GpuUuid, ...]
    request_pct: int
    limit_pct: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """A container was registered, or its terms changed. Its GPUs never change.

    Attributes:
        word: the gate word in its file, from which the count of changes continues; unused for changed terms.
    """

    container: ContainerKey
    terms: ShareTerms
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
        number: names the process in ticks; no number is used twice.
        is_new: the process came since the slots were last read, so all its work counts. Otherwise only new work
            counts.
    """

    container: ContainerKey
    number: int
    owner: int
    now_ns: int
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Gone:
    """A process is dead, or its slot has another owner: the process wants nothing any more.

    Attributes:
        words: its page at that time; None if the page could not be read.
    """

    number: int
    now_ns: int
    words: Words | None = None


@dataclass(frozen=True, slots=True)
class Ticked:
    """A tick of the clock.

    Attributes:
        now_ns: when the last of the pages had been read.
        pages: the consistent pages by process. A missing page could not be read, or shows no unfinished and no new
            work.
    """

    now_ns: int
    pages: Mapping[int, Words]


@dataclass(frozen=True, slots=True)
class Utilised:
    """NVML's process utilisation on one GPU since the last such event, about a second ago.

    Attributes:
        used_pct: by process, exact to a point. A process that used nothing may be missing.
    """

    gpu: GpuUuid
    now_ns: int
    used_pct: Mapping[int, float]


ShareEvent = Joined | Left | Appeared | Gone | Ticked | Utilised


class GateState(Enum):
    """The state of a gate; see `pages.Gate.word`."""

    OPEN = GATE_OPEN
    METERED = GATE_METERED
    SHUT = GATE_SHUT


@dataclass(frozen=True, slots=True)
class SetGate:
    """Write a container's gate. If the word changed, wake the threads that wait on it; see `pages.Gate`."""

    container: ContainerKey
    word: int
    sharers: int


@dataclass(frozen=True, slots=True)
class UnmetSpan:
    """A container wanted compute time throughout a whole span and got less than its request.

    Attributes:
        gpu: the GPU with the least compute time.
        used_pct: the compute time there, in percent.
        span_s: the length of the span.
    """

    container: ContainerKey
    gpu: GpuUuid
    used_pct: float
    request_pct: int
    span_s: float


@dataclass(frozen=True, slots=True)
class ShareOveruse:
    """NVML showed that a process used more of a GPU than its words can mean, over two spans in a row.

    Attributes:
        owner: the owner word of the process.
        used_pct: NVML's figure for the second span.
        claimed_pct: the most that its words can mean for the same span.
    """

    container: ContainerKey
    owner: int
    gpu: GpuUuid
    used_pct: float
    claimed_pct: float


ShareInstruction = SetGate | UnmetSpan | ShareOveruse


@dataclass(frozen=True, slots=True)
class ShareUse:
    """A container's compute time as the mean over its GPUs, for metrics and the description.

    Attributes:
        state: the state of its gate. Time behind an open gate is not metered, and not counted here.
        used_pct: compute time over the latest second or two.
        busy_s: time that the GPU executed its work, since it joined.
        waited_s: time in which a thread of it stood at its shut gate, since it joined.
        waits: the number of such times.
    """

    terms: ShareTerms
    state: GateState
    used_pct: float = 0.0
    busy_s: float = 0.0
    waited_s: float = 0.0
    waits: int = 0
