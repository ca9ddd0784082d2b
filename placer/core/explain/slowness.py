"""Whether a running pod is slow by its limit, by its neighbours, or by its host: as far as the placer knows.

The placer knows what was promised, the last report of the node (memory of each process, and the idle average of each
GPU), the last events about the container's limits, and the pod's CPU requests and limits. It knows neither the
compute time that each container used (the node's broker does, see `plimsoll status`) nor the CPU time (`kubectl top`
does). What always holds: a finding that needs one of these is `unknown` or `possible`, never `likely`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from plimsoll.events import Limit
from plimsoll.gpu_events import GpuHealth, HealthClass
from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.placer_api.explain import Check, Finding
from plimsoll.quantity import format_bytes

IDLE_PCT: Final = 25.0
"""A GPU that idles for this part of the time or more has time for all its containers: work rarely waits for it."""

NEAR_PCT: Final = 5.0
"""The points within which busy time counts as at the limit: the average decays, and short pauses are in it."""

NEAR_LINE_RATIO: Final = 0.98
"""A container that holds this part of its line cannot grow by anything that matters."""

UNMEASURED: Final = "reports carry no compute time per container; `plimsoll status` on the node shows it"


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A container's part of one GPU, with what the last report says of the GPU.

    Attributes:
        line_bytes, share_pct, limit_pct, whole: as granted.
        used_bytes: the memory of the container's processes; None without a report of the GPU.
        processes: their number; None likewise.
        idle_pct: the GPU's idle average, 0–100; None likewise.
        others: the processes there that are not the pod's; None likewise.
        promised_pct: the compute time that is promised to other pods there, in percent.
        health: the GPU's health; None for a healthy one, or where it is not known.
    """

    container: ContainerName
    gpu: GpuUuid
    line_bytes: int
    share_pct: int
    limit_pct: int
    whole: bool
    used_bytes: int | None = None
    processes: int | None = None
    idle_pct: float | None = None
    others: int | None = None
    promised_pct: int = 0
    health: GpuHealth | None = None


@dataclass(frozen=True, slots=True)
class LimitNews:
    """The last event of one kind about a container's limits.

    Attributes:
        what: `denied`, `paused`, `unmet`, …: the `<what>` of `limit.<what>`.
        age_s: seconds since the placer read it.
        limit: the event's data.
    """

    what: str
    age_s: float
    limit: Limit


@dataclass(frozen=True, slots=True)
class Observed:
    """The facts about a running pod that the placer knows.

    Attributes:
        parts: its parts of GPUs, with the measurements of the last report.
        silent: the node has not reported for too long, so measurements are old.
        news: recent events about its limits; None where the placer reads none.
        cpu: the pod's CPU requests and limits for people; None where they are not known.
        unheld: nothing holds the pod to its parts.
    """

    parts: tuple[GpuPart, ...]
    silent: bool = False
    news: tuple[LimitNews, ...] | None = ()
    cpu: str | None = None
    unheld: bool = False


def checks_of(observed: Observed) -> tuple[Check, ...]:
    """The findings on the pod's limit, its neighbours and its host, and on its GPUs where they are not healthy."""
    if not observed.parts:
        text = "the pod asked for no GPU"
        return tuple(
            Check(by=by, finding=Finding.UNLIKELY if by != "host" else Finding.UNKNOWN, text=text)
            for by in ("limit", "neighbours", "host")
        )
    return (
        _check("limit", _limits(observed)),
        _check("neighbours", [_neighbour_news(observed), *map(_by_neighbours, observed.parts)]),
        _check("host", [_by_host(observed)]),
        *_by_gpu(observed.parts),
    )


def verdict_of(observed: Observed, checks: Collection[Check]) -> str:
    """A sentence that says what slows the pod."""
    stale = " (by its last report, which is old: the node is silent)" if observed.silent else ""
    for finding, how in ((Finding.LIKELY, "likely"), (Finding.POSSIBLE, "possibly")):
        found = [one for one in checks if one.finding is finding]
        if found:
            named = " or ".join(f"by its {one.by}" for one in found)
            return f"If it is slow, then {how} {named}: {found[0].text}{stale}"
    unknown = [one for one in checks if one.finding is Finding.UNKNOWN]
    if unknown:
        return f"Unknown: {unknown[0].text}{stale}"
    return f"Nothing that the placer knows holds it back{stale}"


_Found = tuple[Finding, str]
_ORDER: Final = (Finding.LIKELY, Finding.POSSIBLE, Finding.UNKNOWN, Finding.UNLIKELY)


def _check(by: str, found: Iterable[_Found | None]) -> Check:
    """The gravest finding; of equal ones the first."""
    finding, text = min((one for one in found if one is not None), key=lambda one: _ORDER.index(one[0]))
    return Check(by=by, finding=finding, text=text)


def _limits(observed: Observed) -> list[_Found | None]:
    if observed.unheld:
        text = "held by nothing: the pod may use each GPU that it sees, and all of its memory"
        return [(Finding.UNLIKELY, text)]
    return [_limit_news(observed), *map(_by_line, observed.parts), *map(_by_limit, observed.parts)]


def _limit_news(observed: Observed) -> _Found | None:
    for one in observed.news or ():
        if one.what in {"denied", "paused"}:
            asked = format_bytes(one.limit.requested_bytes)
            did = "was refused" if one.what == "denied" else "waits for"
            line = format_bytes(one.limit.line_bytes)
            text = f"{one.limit.container} {did} {asked} {one.age_s:.0f} s ago, by its line of {line}"
            return Finding.LIKELY, text
    return None


def _by_line(part: GpuPart) -> _Found | None:
    """The finding on the memory line; None where the container may still grow."""
    held_bytes = part.used_bytes or 0
    if part.whole or not part.line_bytes or held_bytes < NEAR_LINE_RATIO * part.line_bytes:
        return None
    held, line = format_bytes(held_bytes), format_bytes(part.line_bytes)
    who = f"{part.container} on {part.gpu}"
    return Finding.POSSIBLE, f"{who} holds {held} of its line of {line}, and is refused more"


def _by_limit(part: GpuPart) -> _Found:
    """The finding on the compute limit."""
    who = f"{part.container} on {part.gpu}"
    if part.whole or part.limit_pct >= 100:
        owns = "owns the GPU whole" if part.whole else "may use all time that others leave (limit 100 %)"
        return Finding.UNLIKELY, f"{who} {owns}"
    limited = f"{who} may use {part.limit_pct} % of the time"
    if part.idle_pct is None:
        return Finding.UNKNOWN, f"{limited}, and no report of the GPU is here"
    busy_pct = 100 - part.idle_pct
    if part.processes == 0 or busy_pct < part.limit_pct - NEAR_PCT:
        return Finding.UNLIKELY, f"{limited}, and all processes together use {busy_pct:.0f} % of it"
    if part.others == 0:
        return Finding.LIKELY, f"{limited}, and uses it alone: the GPU is busy for {busy_pct:.0f} %"
    return Finding.UNKNOWN, f"{limited}; whether it does is not known: {UNMEASURED}"


def _neighbour_news(observed: Observed) -> _Found | None:
    for one in observed.news or ():
        if one.what == "unmet":
            got, due = one.limit.used_pct, one.limit.share_pct
            text = (
                f"{one.limit.container} got {got:.0f} % of the time {one.age_s:.0f} s ago, "
                f"while it wanted its share of {due} %"
            )
            return Finding.LIKELY, text
    return None


def _by_neighbours(part: GpuPart) -> _Found:
    who = f"{part.container} on {part.gpu}"
    if part.whole:
        return Finding.UNLIKELY, f"{who} has no neighbours: it owns the GPU whole"
    if part.idle_pct is None or part.others is None:
        return Finding.UNKNOWN, f"no report of {part.gpu} is here"
    if part.others == 0:
        return Finding.UNLIKELY, f"no other process is on {part.gpu}"
    shared = f"{part.gpu} has {part.others} other process{'es' if part.others > 1 else ''}"
    if part.idle_pct >= IDLE_PCT:
        return Finding.UNLIKELY, f"{shared}, and idles for {part.idle_pct:.0f} % of the time"
    promised = f"{part.promised_pct} % of its time is promised to others"
    busy = f"{shared}, {promised}, and it idles for {part.idle_pct:.0f} %"
    due = f"{who} is sure of {part.share_pct} %" if part.share_pct else f"{who} declared no share"
    return Finding.POSSIBLE, f"{busy}; {due}. Whose work it does is not known: {UNMEASURED}"


def _by_host(observed: Observed) -> _Found:
    cpu = f"{observed.cpu}; " if observed.cpu else ""
    unmeasured = f"{cpu}the CPU time that it uses is not known here (`kubectl top pod` shows it)"
    parts = [one for one in observed.parts if one.idle_pct is not None]
    if not parts:
        return Finding.UNKNOWN, f"no report of its GPUs is here, and {unmeasured}"
    if all(one.processes == 0 for one in parts):
        return Finding.LIKELY, f"no process of it is on a GPU; {unmeasured}"
    alone = [one for one in parts if one.whole or one.others == 0]
    idle = next((one for one in alone if _gets_no_work(one)), None)
    if idle is not None:
        text = f"{idle.gpu} works for it alone and idles for {idle.idle_pct:.0f} % of the time"
        return Finding.LIKELY, f"{text}: the program gives it no more work; {unmeasured}"
    shared = next((one for one in parts if one not in alone and (one.idle_pct or 0) >= IDLE_PCT), None)
    if shared is not None:
        text = f"{shared.gpu} idles for {shared.idle_pct:.0f} % of the time"
        return Finding.POSSIBLE, f"{text}, and how much of its work is this pod's is not known; {unmeasured}"
    if len(alone) == len(parts):
        return Finding.UNLIKELY, "its GPUs work all the time, or as long as its limit lets them"
    return Finding.UNKNOWN, f"its GPU is busy, and {UNMEASURED}; {unmeasured}"


def _by_gpu(parts: Collection[GpuPart]) -> tuple[Check, ...]:
    """The finding on the gravest condition of the pod's GPUs; a fault of a program slows no other."""
    found = [
        (Finding.LIKELY if one.health.health is HealthClass.FATAL else Finding.POSSIBLE, _ailing(one.health))
        for one in parts
        if one.health is not None and one.health.health in (HealthClass.DEGRADED, HealthClass.FATAL)
    ]
    return (_check("GPU", found),) if found else ()


def _ailing(health: GpuHealth) -> str:
    reasons = "; ".join(f"{one.text} (since {one.since})" for one in health.conditions)
    return f"{health.gpu} is {health.health.value}: {reasons}"


def _gets_no_work(part: GpuPart) -> bool:
    """Whether a GPU that works for one container idles for longer than the container's limit makes it."""
    assert part.idle_pct is not None, "only GPUs with a report are examined"
    limit_pct = 100 if part.whole else part.limit_pct
    return part.idle_pct >= IDLE_PCT and 100 - part.idle_pct < limit_pct - NEAR_PCT
