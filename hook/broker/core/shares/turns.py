"""What goes into the share scheduler (events) and what comes out (instructions).

All times are nanoseconds of CLOCK_MONOTONIC. An event carries the moment at which it happened or was read; they come
in the order of these moments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hook.broker.core.facts import ContainerKey, ProcessKey
from plimsoll.layout import GATE_METERED, GATE_OPEN, GATE_SHUT
from plimsoll.names import GpuUuid


@dataclass(frozen=True, slots=True)
class Terms:
    """What one container was promised of its GPUs, of each the same.

    Attributes:
        gpus: all of them; it holds the tokens of all or of none.
        request_pct: compute time guaranteed, 0 to 100 (KubeShare's gpu_request).
        limit_pct: compute time at most, 1 to 100, never below the request (gpu_limit).
        whole: it owns its GPUs: never scheduled, its gate stays open.
    """

    gpus: tuple[GpuUuid, ...]
    request_pct: int
    limit_pct: int
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """A container was registered, or its terms changed; its GPUs never do.

    Attributes:
        word: what its gate file says, where a broker before this one wrote it: its processes may be at work, and the
            count of changes goes on from here. 0 for a new file; with changed terms it says nothing new.
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
class Use:
    """What one process says of the time it used; as in its slot, so nothing in it is believed beyond what can be.

    Attributes:
        busy_ns: with unfinished work, while its gate was not open, up to the end of the latest burst.
        busy_since_ns: when the burst under way began; 0 for none.
    """

    busy_ns: int
    busy_since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Reported:
    """A process told where it stands (`layout.KIND_SHARE`).

    Attributes:
        wants: a launch of it waits at the gate.
        unfinished: it has work that is not done.
        gate_word: what it last obeyed: an older word than the one that stands says nothing of that one.
        idle_since_ns: when its latest burst ended; 0 for never.
    """

    container: ContainerKey
    process: ProcessKey
    now_ns: int
    wants: bool
    unfinished: bool
    use: Use
    gate_word: int
    idle_since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Gone:
    """A process is dead: it wants and uses nothing any more."""

    container: ContainerKey
    process: ProcessKey
    now_ns: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """The moment that `Scheduler.due_ns` named has come.

    Attributes:
        uses: read just now, of every process in `Scheduler.watched`; one that cannot be read is left out.
    """

    now_ns: int
    uses: Mapping[tuple[ContainerKey, ProcessKey], Use]


ShareEvent = Joined | Left | Reported | Gone | Ticked


class GateState(Enum):
    """As in `layout.Gate.word`."""

    OPEN = GATE_OPEN
    METERED = GATE_METERED
    SHUT = GATE_SHUT


@dataclass(frozen=True, slots=True)
class SetGate:
    """Write a container's gate word, one step further, and wake who waits on it.

    Attributes:
        word: the whole word, see `layout.Gate`.
    """

    container: ContainerKey
    word: int


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


ShareInstruction = SetGate | Unmet


@dataclass(frozen=True, slots=True)
class ShareUse:
    """What a container had of its GPUs' compute time, for metrics and the description.

    Attributes:
        state: its gate's; of a time when it was open nothing is known.
        used_pct: over the latest second or two, in percent of one GPU.
        busy_s, waited_s, drain_s, overrun_s: since it joined: time with unfinished work; time in which a launch
            waited at the gate; time from the revocation of its token to the end of its work; use without the token.
        waits, grants: how often, likewise; a wait that is not over is not counted.
    """

    terms: Terms
    state: GateState
    used_pct: float = 0.0
    busy_s: float = 0.0
    waited_s: float = 0.0
    drain_s: float = 0.0
    overrun_s: float = 0.0
    waits: int = 0
    grants: int = 0
