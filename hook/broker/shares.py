"""Carries the share scheduler's instructions out, at once: no turn, no thread and no task lies between.

What always holds: every event is handled on the loop, in the order in which it came; a gate shows the scheduler's
latest word from the moment that it was decided; exactly one timer stands, at the moment that the scheduler named.
A scheduler that fails is replaced by a new one under which every process reports anew; where new ones fail again and
again, all gates open for a while. So nobody waits at a gate that nobody would open.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, assert_never

import structlog

from hook.broker.core.datagram import ShareReport
from hook.broker.core.facts import ContainerKey
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.turns import (
    Gone,
    Joined,
    Left,
    Reported,
    SetGate,
    ShareEvent,
    ShareInstruction,
    ShareUse,
    Terms,
    Ticked,
    Unmet,
)
from hook.broker.core.turns import Unheld
from hook.broker.gates import Gate
from hook.broker.processes import TICKS_PER_S
from hook.broker.sharers import Sharer, Sharers
from plimsoll.brokerwire import ContainerLines

BEAT_S: Final = 1.0
"""The library takes a broker for lost after 3 s without a beat."""

FAILURES_MOST: Final = 5
FAILURES_S: Final = 60.0
"""More failures than this, in so long, are no accident that a new scheduler is spared."""

REST_S: Final = 60.0
"""From there until it is tried again; meanwhile nobody is held."""

_NS: Final = 1e-9
_log: Final = structlog.get_logger()


class Shares:
    """The node's compute shares at work; to be used on the loop's thread only."""

    def __init__(
        self,
        new_scheduler: Callable[[], Scheduler],
        counts_path: Callable[[ContainerKey], Path],
        tell: Callable[[Unmet | Unheld], None],
    ) -> None:
        """Begin with no container.

        Args:
            new_scheduler: makes one that knows nothing.
            counts_path: where a container's processes count.
            tell: announces what an operator should hear of.
        """
        self._new_scheduler = new_scheduler
        self._scheduler = new_scheduler()
        self._tell = tell
        self._terms: dict[ContainerKey, Terms] = {}
        self._gates: dict[ContainerKey, Gate] = {}
        self._sharers = Sharers(counts_path, self._on_death)
        self._started_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns: int | None = None
        self._failed_s: list[float] = []
        self._resuming: asyncio.TimerHandle | None = None

    def join(self, container: ContainerKey, lines: ContainerLines, gate: Gate) -> None:
        """A container was laid out, perhaps again; takes the gate over."""
        older = self._gates.get(container)
        if older is None:
            self._gates[container] = gate
        elif older.identity == gate.identity:
            gate.close()
        else:
            _log.warning(
                "gate_was_replaced",
                **_named(container),
                value=gate.identity,
                was=older.identity,
                effect="its programs run unheld",
                remedy="restart them; leave the gate file to the broker",
            )
            self._gates[container] = gate
            gate.take_over(older)
        terms, before = _terms(lines), self._terms.get(container)
        if before != terms:
            self._terms[container] = terms
            if before is not None and before.whole != terms.whole:
                self._handle(Left(container, time.monotonic_ns()))
            self._handle(Joined(container, terms, time.monotonic_ns(), self._gates[container].word))

    def leave(self, container: ContainerKey) -> None:
        """A container was removed; whoever should linger there is let through."""
        if self._terms.pop(container, None) is None:
            return
        self._sharers.forget(container)
        self._handle(Left(container, time.monotonic_ns()))
        self._gates.pop(container).open_for_good()

    async def introduce(self, container: ContainerKey, pid: int, report: ShareReport) -> Sharer:
        """Who a connection's first report comes from; is to be told of once per connection.

        Raises:
            InputError: it is not who it says, or the container has too many already.
            OSError: descriptors ran out.
        """
        sharer, is_new = await self._sharers.introduce(container, pid, report)
        gate = self._gates.get(container)
        if is_new and gate is not None and gate.was_held and self._has_run(sharer, report):
            self._tell(Unheld(container, sharer.key))
        return sharer

    def report(self, sharer: Sharer, report: ShareReport) -> None:
        """A process told where it stands.

        Raises:
            InputError: the report names another process.
        """
        sharer.check(report)
        gate = self._gates.get(sharer.container)
        if gate is None or not sharer.lives:
            return  # a child may still hold the connection of a dead process
        event = Reported(
            container=sharer.container,
            process=sharer.key,
            now_ns=time.monotonic_ns(),
            wants=report.wants,
            unfinished=report.unfinished,
            use=sharer.told(report.busy_ns, report.busy_since_ns),
            gate_word=report.gate_word,
            idle_since_ns=report.idle_since_ns,
        )
        self._handle(event)

    def hung_up(self, sharer: Sharer) -> None:
        """A process ended its connection: it became another program, or closed what it did not know.

        Nobody knows what it does now, so nobody waits for it. If it is still under the library it comes again.
        """
        if sharer.lives:
            sharer.settle()
            self._handle(Gone(sharer.container, sharer.key, time.monotonic_ns()))

    def uses(self, container: ContainerKey) -> ShareUse | None:
        """What a container had of its GPUs' compute time; None for one that is not laid out."""
        return self._scheduler.uses(container, time.monotonic_ns())

    async def beat(self) -> None:
        """Show for ever, wherever somebody may wait, that the broker lives."""
        while True:
            await asyncio.sleep(BEAT_S)
            for gate in self._gates.values():
                if not gate.is_open:
                    gate.beat()

    def close(self) -> None:
        """Hear and do nothing any more. The words stand: the next broker goes on from them."""
        for timer in (self._timer, self._resuming):
            if timer is not None:
                timer.cancel()
        self._sharers.close()
        for gate in self._gates.values():
            gate.close()
        self._gates.clear()
        self._terms.clear()

    def _has_run(self, sharer: Sharer, report: ShareReport) -> bool:
        """Whether it was at work, as far as can be told, before this broker was there."""
        return sharer.began_before(self._started_ticks) and (report.unfinished or report.busy_ns > 0)

    def _on_death(self, sharer: Sharer) -> None:
        self._handle(Gone(sharer.container, sharer.key, time.monotonic_ns()))

    def _tick(self) -> None:
        self._timer, self._due_ns = None, None
        self._attempt(self._look, "a tick")

    def _look(self) -> None:
        uses = self._sharers.uses(self._scheduler.watched)
        self._take(Ticked(time.monotonic_ns(), uses))

    def _handle(self, event: ShareEvent) -> None:
        self._attempt(partial(self._take, event), event)

    def _take(self, event: ShareEvent) -> None:
        self._carry_out(self._scheduler.handle(event))
        self._set_timer()

    def _attempt(self, work: Callable[[], None], what: object) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - else whoever waits at a gate would wait for ever
            effect, remedy = "all shares begin anew", "none needed if it stays at that; report it as a bug"
            _log.exception("scheduler_failed", value=repr(what), effect=effect, remedy=remedy)
            self._mend()

    def _mend(self) -> None:
        now_s = time.monotonic()
        self._failed_s = [at_s for at_s in self._failed_s if at_s > now_s - FAILURES_S] + [now_s]
        if len(self._failed_s) > FAILURES_MOST:
            self._give_up()
        else:
            self._attempt(self._begin_anew, "a new beginning")

    def _begin_anew(self) -> None:
        self._scheduler = self._new_scheduler()
        for container, terms in self._terms.items():
            joined = Joined(container, terms, time.monotonic_ns(), self._gates[container].word)
            self._carry_out(self._scheduler.handle(joined))
        self._set_timer()

    def _give_up(self) -> None:
        """Let everybody run, and try again later."""
        self._set_timer_at(None)
        self._scheduler = self._new_scheduler()  # knows nobody, so it has nothing to say of them
        for gate in self._gates.values():
            gate.open()
        if self._resuming is not None:
            self._resuming.cancel()
        resume = partial(self._attempt, self._begin_anew, "another beginning")
        self._resuming = asyncio.get_running_loop().call_later(REST_S, resume)
        effect, remedy = (
            "every gate is open, nobody is held to a share",
            "report it as a bug; see scheduler_failed",
        )
        failures = len(self._failed_s)
        _log.error("shares_not_held", failures=failures, effect=effect, again_in_s=REST_S, remedy=remedy)

    def _carry_out(self, instructions: list[ShareInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SetGate(container, word):
                    self._gates[container].set(word)
                case Unmet():
                    self._tell(instruction)
                case _:
                    assert_never(instruction)

    def _set_timer(self) -> None:
        self._set_timer_at(self._scheduler.due_ns)

    def _set_timer_at(self, due_ns: int | None) -> None:
        if due_ns == self._due_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_ns, self._timer = due_ns, None
        if due_ns is not None:
            # The loop's clock is CLOCK_MONOTONIC too, in seconds.
            self._timer = asyncio.get_running_loop().call_at(due_ns * _NS, self._tick)


def _terms(lines: ContainerLines) -> Terms:
    """Every line promises the same, see `core.checks`."""
    first = lines.lines[0]
    gpus = tuple(line.gpu for line in lines.lines)
    return Terms(gpus, first.share_pct, first.limit_pct, lines.whole)


def _named(container: ContainerKey) -> Mapping[str, str]:
    return {"pod": container.pod, "container": container.container}
