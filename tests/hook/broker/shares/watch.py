"""What must hold of every schedule, looked at after every event."""

from dataclasses import dataclass, field

from hook.broker.core.facts import ContainerKey
from hook.broker.core.shares.settings import MS, US
from hook.broker.core.shares.turns import GateState, SetGate
from plimsoll.layout import GATE_STEP
from plimsoll.names import GpuUuid
from tests.hook.broker.shares.world import Container, World

LATE_NS = 2 * MS
"""Wires, wake-ups and looks together."""


@dataclass(eq=False, slots=True)
class LimitTrack:
    """How far a container's use ever rose above its limit, over any stretch of time.

    Attributes:
        least_ns: the least of what it used less what its limit allowed, up to now.
        most_ns: the most by which this ever rose from there.
    """

    least_ns: float = 0.0
    most_ns: float = 0.0

    def note(self, above_ns: float) -> None:
        """So much was used so far less what was allowed so far."""
        self.least_ns = min(self.least_ns, above_ns)
        self.most_ns = max(self.most_ns, above_ns - self.least_ns)


@dataclass(eq=False, slots=True)
class Watch:
    """Attach it to a world before anything runs."""

    world: World
    words: dict[ContainerKey, int] = field(default_factory=dict)
    limits: dict[ContainerKey, LimitTrack] = field(default_factory=dict)
    longest_quota_ns: float = 0.0
    longest_wait_ns: dict[ContainerKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world.checks.append(self.check)

    def check(self) -> None:
        """After every event."""
        self._words_step()
        self._one_holder_each()
        self._lags_cancel_out()
        for container in self.world.containers.values():
            self._use_is_possible(container)
            self._note(container)

    def allowed_over_ns(self, container: Container) -> float:
        """By how much a container may pass its limit over any time: a quota, and what could not be stopped.

        That is, of each process, what was queued when the credit was spent: a kernel under way and the run-ahead.
        """
        run_ahead_ns = self.world.settings.run_ahead_us * US
        queued_ns = sum(2 * process.longest_ns + run_ahead_ns for process in container.everyone)
        return self.longest_quota_ns + queued_ns + LATE_NS

    def _words_step(self) -> None:
        _, steps = self.world.handled[-1]
        for step in steps:
            if isinstance(step, SetGate):
                before = self.words.get(step.container)
                if before is not None:
                    assert step.word // GATE_STEP == before // GATE_STEP + 1, "a word that waits could miss"
                    assert step.word % GATE_STEP != before % GATE_STEP, "it says what it said"
                self.words[step.container] = step.word

    def _one_holder_each(self) -> None:
        passing: set[GpuUuid] = set()
        for container in self.world.containers.values():
            if container.state is not GateState.SHUT:
                assert passing.isdisjoint(container.terms.gpus), "two hold the token of one GPU"
                passing.update(container.terms.gpus)

    def _lags_cancel_out(self) -> None:
        for gpu in self.world.scheduler._gpus.values():
            lags_ns = [account.lag_ns for account in gpu.ledger.accounts]
            assert abs(sum(lags_ns)) < 1, "what some are behind is not what others are ahead"
            self.longest_quota_ns = max(self.longest_quota_ns, gpu.quota.quota_ns)

    def _use_is_possible(self, container: Container) -> None:
        charged_ns = self.world.scheduler._clients[container.key].meter.used_ns
        assert charged_ns <= self.world.now_ns - container.joined_ns, "more was charged than time passed"

    def _note(self, container: Container) -> None:
        if container.terms.limit_pct < 100:
            elapsed_ns = self.world.now_ns - container.joined_ns
            above_ns = self.world.used_ns(container) - container.terms.limit_pct / 100 * elapsed_ns
            self.limits.setdefault(container.key, LimitTrack()).note(above_ns)
        since = [p.wants_ns for p in container.processes if p.wants_ns and not p.is_stopped]
        waited_ns = self.world.now_ns - min(since, default=self.world.now_ns)
        self.longest_wait_ns[container.key] = max(waited_ns, self.longest_wait_ns.get(container.key, 0))
