"""Feeds the share scheduler with ticks and other events, and carries its instructions out at once, without another
thread or task.

What always holds: the loop handles every event, in the order of arrival. A gate shows the scheduler's latest word
from the moment of its decision. Exactly one timer is set: for a tick while any container must be metered, else for a
slow scan of the slots. A new scheduler replaces one that fails. If new ones fail again and again, all gates open for
a while. So no thread stands at a gate that nothing would open.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from itertools import count
from math import ceil
from typing import Final, assert_never

from hook.broker.core.events import Unheld
from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import (
    Appeared,
    Gone,
    Joined,
    Left,
    SetGate,
    ShareEvent,
    ShareOveruse,
    ShareTerms,
    ShareUse,
    Ticked,
    UnmetSpan,
    Utilised,
    Words,
)
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.shares.gate_files import GateFile
from hook.broker.shares.tenant_files import TenantFiles
from hook.broker.shares.utilisation import Used
from hook.broker.shares.work_pages import WorkPages
from plimsoll.broker.wire import ContainerLines
from plimsoll.ids import GpuUuid, ProcessKey
from plimsoll.part.clock import OWN, TICKS_PER_S, machine_ns
from plimsoll.part.log import get_logger

BEAT_S: Final = 0.25
"""Seconds between two beats. A program whose broker was killed stands for two of them: see `pages.LATE_NS`."""

BUSY_MOST: Final = 0.35
"""The largest part of a core that ticks may take. Where a tick takes longer, as with hundreds of processes, ticks
come further apart. `ShareSettings.tick_ms` says what longer ticks cost."""

IDLE_TICK_S: Final = 0.02
"""Seconds between two ticks while no process has work and no account has a debt. Then a tick only finds new work,
which is charged from its start, however late the tick is."""

SMOOTHING: Final = 8
"""The duration of a tick is averaged over about this many ticks."""

SCAN_S: Final = 1.0
"""Seconds between two scans of a container's slots, for processes whose hello or death no event reported."""

FAILURES_MOST: Final = 5
FAILURES_S: Final = 60.0
"""After more failures than this in this many seconds, a new scheduler would fail too."""

COMPARE_S: Final = 1.0
"""Seconds between two questions to NVML. The driver keeps samples of some seconds."""

LEAST_SPAN_NS: Final = 500_000_000
"""NVML's figure for a shorter time does not represent the whole span."""

VALUE_MOST: Final = 2000
"""Characters of an event in the log: a tick names every process."""

REST_S: Final = 60.0
"""Seconds with all gates open before another scheduler is tried."""

_log: Final = get_logger()


class Shares:
    """The compute shares of a node at work; for the loop's thread only."""

    def __init__(
        self,
        new_scheduler: Callable[[], Scheduler],
        tick_s: float,
        processes_of: Callable[[ContainerKey], Mapping[ProcessKey, int]],
        survey: Callable[[ContainerKey], None],
        announce: Callable[[UnmetSpan | Unheld | ShareOveruse], None],
    ) -> None:
        """Begin with no container.

        Args:
            new_scheduler: makes a scheduler without containers.
            tick_s: seconds between two ticks.
            processes_of: gives a container's announced processes, with their owner words.
            survey: surveys a container, for processes that were not announced.
            announce: takes findings for the operator.
        """
        self._new_scheduler = new_scheduler
        self._scheduler = new_scheduler()
        self._tick_s = tick_s
        self._processes_of = processes_of
        self._survey = survey
        self._announce = announce
        self._new_number = partial(next, count(1))
        self._tenants: dict[ContainerKey, TenantFiles] = {}
        self._ring: deque[TenantFiles] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_ticking = False
        self._ticked_s = 0.0
        self._tick_took_s = 0.0
        self._failed_s: list[float] = []
        self._resuming: asyncio.TimerHandle | None = None
        self._started_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S) - OWN.boot_ticks

    def join(
        self, container: ContainerKey, lines: ContainerLines, gate: GateFile, counts: int | None
    ) -> None:
        """Take in a container that was laid out, perhaps again, and own its gate and its file of `open_counts`.

        From the first beat on, the container's `hook.sock` must listen: see `pages.LATE_NS`.
        """
        gate.beat()
        tenant, terms = self._tenants.get(container), _terms(lines)
        if tenant is None:
            pages = WorkPages(len(terms.gpus), self._new_number)
            tenant = self._tenants[container] = TenantFiles(container, terms, gate, pages)
            self._ring.append(tenant)
        else:
            tenant.adopt(gate)
            if tenant.terms.whole != terms.whole:
                self._handle(Left(container, machine_ns()))
            tenant.terms = terms
        tenant.pages.take(counts)
        self._attempt(partial(self._enter, tenant), "a container")
        self.rescan(container)

    def leave(self, container: ContainerKey) -> None:
        """Remove a container. Its gate opens, so that its last threads go on."""
        tenant = self._tenants.pop(container, None)
        if tenant is not None:
            self._ring.remove(tenant)
            self._handle(Left(container, machine_ns()))
            tenant.pages.close()
            tenant.gate.open_for_good()

    def rescan(self, container: ContainerKey) -> None:
        """Scan a container's slots, because processes may have come."""
        tenant = self._tenants.get(container)
        if tenant is not None:
            self._attempt(partial(self._rescan, tenant), "a scan")

    def came(self, container: ContainerKey, slot: int) -> None:
        """Take in the process that owns a slot, where it is new; cheaper than a scan of all slots."""
        tenant = self._tenants.get(container)
        if tenant is not None and (page := tenant.pages.look(slot)) is not None:
            self._handle(Appeared(container, page.number, page.owner, machine_ns(), tenant.is_scanned))

    def died(self, container: ContainerKey, owner: int) -> None:
        """Take in a death: the process's words count up to now, and it wants nothing any more."""
        tenant = self._tenants.get(container)
        if tenant is not None:
            for page in tenant.pages.drop(owner):
                self._handle(Gone(page.number, machine_ns(), page.read()))

    def uses(self, container: ContainerKey) -> ShareUse | None:
        """A container's compute time; None for a container that is not laid out."""
        return self._scheduler.uses(container, machine_ns())

    def pages(self) -> Iterator[tuple[ContainerKey, tuple[GpuUuid, ...], WorkPages]]:
        """Each container with its GPUs and its processes' pages."""
        for tenant in self._ring:
            yield tenant.key, tenant.terms.gpus, tenant.pages

    async def beat(self) -> None:
        """Write a beat to every gate that is not open, for ever."""
        while True:
            await asyncio.sleep(BEAT_S)
            for tenant in self._tenants.values():
                if not tenant.gate.is_open:
                    tenant.gate.beat()

    async def compare(self, ask: Callable[[], Awaitable[Mapping[tuple[GpuUuid, int], Used]]]) -> None:
        """Compare the words of processes with NVML's figures, for ever, while any container is metered."""
        while True:
            await asyncio.sleep(COMPARE_S)
            if self._is_ticking:
                used = await ask()
                for gpu in {gpu for tenant in self._ring for gpu in tenant.terms.gpus}:
                    self._handle(Utilised(gpu, machine_ns(), self._used_pct(gpu, used)))

    def close(self) -> None:
        """Stop reading and ticking. The gate words stay, and the next broker continues from them."""
        for timer in (self._timer, self._resuming):
            if timer is not None:
                timer.cancel()
        for tenant in self._tenants.values():
            tenant.pages.close()
            tenant.gate.close()
        self._tenants.clear()
        self._ring.clear()

    def _enter(self, tenant: TenantFiles) -> None:
        """Give a container, its terms and its processes to the scheduler, which ignores processes that it knows."""
        self._take(Joined(tenant.key, tenant.terms, machine_ns(), tenant.gate.word))
        for page in tenant.pages.all:
            self._take(Appeared(tenant.key, page.number, page.owner, machine_ns(), is_new=False))
            page.is_live = True

    def _rescan(self, tenant: TenantFiles) -> None:
        """Find the processes that came and those that went."""
        came, went = tenant.pages.rescan()
        for page in went:
            self._take(Gone(page.number, machine_ns()))
        for page in came:
            is_new = tenant.is_scanned
            self._take(Appeared(tenant.key, page.number, page.owner, machine_ns(), is_new))
        tenant.is_scanned = True
        known = self._processes_of(tenant.key)
        if tenant.needs_survey(known):
            self._survey(tenant.key)
        for process in tenant.newly_unheld(known, self._started_ticks):
            self._announce(Unheld(tenant.key, process))

    def _used_pct(self, gpu: GpuUuid, used: Mapping[tuple[GpuUuid, int], Used]) -> dict[int, float]:
        """NVML's figure for each process on a GPU, by its number; only figures of spans about as long as ours."""
        found: dict[int, float] = {}
        for tenant in self._ring:
            pids = {owner: key.pid for key, owner in self._processes_of(tenant.key).items()}
            for page in tenant.pages.all:
                span = used.get((gpu, pids.get(page.owner, 0)))
                if span is not None and span.ended_ns - span.began_ns >= LEAST_SPAN_NS:
                    found[page.number] = span.busy_pct
        return found

    # Time.

    def _on_timer(self) -> None:
        self._timer, now_s = None, asyncio.get_running_loop().time()
        span_s, self._ticked_s = now_s - self._ticked_s, now_s
        began_s = time.thread_time()
        self._attempt(partial(self._tick, span_s), "a tick")
        self._tick_took_s += (time.thread_time() - began_s - self._tick_took_s) / SMOOTHING

    def _tick(self, span_s: float) -> None:
        """Read all pages if any container must be metered. Scan some containers' slots: all within `SCAN_S`."""
        scans = len(self._ring)
        if self._is_ticking:
            pages: dict[int, Words] = {}
            for tenant in self._ring:
                for page in tenant.pages.all:
                    words = page.read()
                    if words is not None:
                        pages[page.number] = words
            self._take(Ticked(machine_ns(), pages))
            scans = min(ceil(scans * span_s / SCAN_S), scans)
        for _ in range(scans):
            self._rescan(self._ring[0])
            self._ring.rotate(-1)

    def _set_timer(self) -> None:
        """Set the timer: for a tick while any container must be metered, else for a scan. A rest has no ticks."""
        is_ticking = self._scheduler.needs_ticks and self._resuming is None
        if self._timer is not None:
            if is_ticking == self._is_ticking:
                return
            self._timer.cancel()
        self._is_ticking, loop = is_ticking, asyncio.get_running_loop()
        least_s = IDLE_TICK_S if self._scheduler.is_at_rest else self._tick_s
        tick_s = max(least_s, self._tick_s, self._tick_took_s / BUSY_MOST)
        due_s = self._ticked_s + (tick_s if is_ticking else SCAN_S)
        self._timer = loop.call_at(max(due_s, loop.time()), self._on_timer)

    # Instructions and failures.

    def _handle(self, event: ShareEvent) -> None:
        self._attempt(partial(self._take, event), event)

    def _take(self, event: ShareEvent) -> None:
        for instruction in self._scheduler.handle(event):
            match instruction:
                case SetGate(container, word, sharers):
                    self._tenants[container].gate.set(word, sharers)
                case UnmetSpan() | ShareOveruse():
                    self._announce(instruction)
                case _:
                    assert_never(instruction)

    def _attempt(self, work: Callable[[], None], what: object) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - else a thread might stand at a gate for ever
            effect, remedy = "all shares begin anew", "none is needed if it happens once; report it as a bug"
            _log.exception("scheduler_failed", value=repr(what)[:VALUE_MOST], effect=effect, remedy=remedy)
            self._mend()
        self._set_timer()

    def _mend(self) -> None:
        now_s = time.monotonic()
        self._failed_s = [at_s for at_s in self._failed_s if at_s > now_s - FAILURES_S] + [now_s]
        if len(self._failed_s) > FAILURES_MOST:
            self._give_up()
        else:
            self._attempt(self._begin_anew, "a new beginning")

    def _begin_anew(self) -> None:
        self._scheduler, self._resuming = self._new_scheduler(), None
        for tenant in self._ring:
            self._enter(tenant)

    def _give_up(self) -> None:
        """Open all gates, and try again after `REST_S`."""
        self._scheduler = self._new_scheduler()  # It has no container, so it gives no instruction.
        for tenant in self._ring:
            tenant.gate.open()
        if self._resuming is not None:
            self._resuming.cancel()
        resume = partial(self._attempt, self._begin_anew, "another beginning")
        self._resuming = asyncio.get_running_loop().call_later(REST_S, resume)
        effect = "every gate is open, no container is held to its share"
        remedy = "report it as a bug; see scheduler_failed"
        failures = len(self._failed_s)
        _log.error("shares_not_held", failures=failures, effect=effect, again_in_s=REST_S, remedy=remedy)


def _terms(lines: ContainerLines) -> ShareTerms:
    """The terms of a container. All its lines have the same share and limit; see `core.registration`."""
    first = lines.lines[0]
    gpus = tuple(line.gpu for line in lines.lines)
    return ShareTerms(gpus, first.share_pct, first.limit_pct, lines.whole)
