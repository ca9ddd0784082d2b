"""What a container whose limit is below 100 may run before it has waited."""

from typing import Final

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS, S, ShareSettings
from hook.broker.core.shares.turns import GateState, Joined, Reported, SetGate, Terms, Use
from plimsoll.layout import GATE_STATES
from plimsoll.names import ContainerName, GpuUuid, PodUid

HERE: Final = ContainerKey(PodUid("pod"), ContainerName("main"))


def test_a_new_container_has_no_whole_quota_ahead() -> None:
    """Its first run is as short as any after a wait: else each start would exceed the limit by a quota."""
    scheduler = Scheduler(ShareSettings())
    (first,) = scheduler.handle(Joined(HERE, Terms((GpuUuid("GPU-a"),), 30, 30), S))
    assert isinstance(first, SetGate)
    wants = Reported(
        HERE, ProcessKey(1, 1), S, wants=True, unfinished=False, use=Use(0), gate_word=first.word
    )
    (granted,) = scheduler.handle(wants)
    assert isinstance(granted, SetGate)
    assert granted.word & GATE_STATES == GateState.METERED.value
    assert scheduler.due_ns is not None
    assert scheduler.due_ns - S <= ShareSettings().quota_least_ms * MS
