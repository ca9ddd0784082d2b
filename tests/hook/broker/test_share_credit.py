"""What a container whose limit is below 100 may run before it has waited."""

from functools import partial
from typing import Final

import pytest

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS, S, ShareSettings
from hook.broker.core.shares.turns import GateState, Joined, Reported, SetGate, Terms, Ticked, Use
from plimsoll.layout import GATE_STATES
from plimsoll.names import ContainerName, GpuUuid, PodUid

HERE: Final = ContainerKey(PodUid("pod"), ContainerName("main"))


@pytest.mark.parametrize(("idle_s", "quotas"), [(0, 1.0), (10, 2.0)])
def test_little_is_saved_ahead_of_a_limit(idle_s: int, quotas: float) -> None:
    """A first run is as short as any after a wait, and one after a long idleness not much longer: else each start
    would exceed the limit by a quota, and its first second by more than 3 points."""
    scheduler = Scheduler(ShareSettings())
    (first,) = scheduler.handle(Joined(HERE, Terms((GpuUuid("GPU-a"),), 30, 30), S))
    assert isinstance(first, SetGate)
    now_ns = (1 + idle_s) * S
    wants = Reported(
        HERE, ProcessKey(1, 1), now_ns, wants=True, unfinished=False, use=Use(0), gate_word=first.word
    )
    (granted,) = scheduler.handle(wants)
    assert isinstance(granted, SetGate)
    assert granted.word & GATE_STATES == GateState.METERED.value
    assert scheduler.due_ns is not None
    lasts_ns = quotas * ShareSettings().quota_least_ms * MS / (1 - (0.3 if idle_s else 0))
    assert scheduler.due_ns - now_ns <= round(lasts_ns)


def test_who_cannot_be_read_is_not_looked_at_all_the_time() -> None:
    """A process whose slot shows nothing, as its container may arrange, costs the broker some looks a second."""
    scheduler = Scheduler(ShareSettings())
    (first,) = scheduler.handle(Joined(HERE, Terms((GpuUuid("GPU-a"),), 30, 50), S))
    assert isinstance(first, SetGate)
    wants = Reported(
        HERE, ProcessKey(1, 1), S, wants=True, unfinished=False, use=Use(0), gate_word=first.word
    )
    scheduler.handle(wants)
    now_ns, looks = S, 0
    while now_ns < 11 * S:
        assert scheduler.due_ns is not None
        now_ns, looks = max(now_ns + 1, scheduler.due_ns), looks + 1
        scheduler.handle(Ticked(now_ns, {}))
    assert looks < 500


def test_time_passed_counts_by_the_limit_that_held_then() -> None:
    """One that waited for most of what it owed has little left to wait for when its limit is lowered."""
    scheduler = Scheduler(ShareSettings())
    gpus = (GpuUuid("GPU-a"),)
    (first,) = scheduler.handle(Joined(HERE, Terms(gpus, 10, 50), S))
    assert isinstance(first, SetGate)
    says = partial(Reported, HERE, ProcessKey(1, 1), wants=True, unfinished=False)
    (granted,) = scheduler.handle(says(now_ns=S, use=Use(0), gate_word=first.word))
    assert isinstance(granted, SetGate)
    (shut,) = scheduler.handle(Ticked(2 * S, {(HERE, ProcessKey(1, 1)): Use(0, S)}))
    assert isinstance(shut, SetGate)
    scheduler.handle(says(now_ns=2 * S, use=Use(S), gate_word=shut.word))
    now_ns = 2 * S + 900 * MS
    scheduler.handle(Joined(HERE, Terms(gpus, 10, 10), now_ns))
    assert scheduler.due_ns is not None
    owed_ns = S // 2 - 450 * MS + ShareSettings().quota_least_ms * MS
    assert scheduler.due_ns - now_ns <= owed_ns / 0.1
