"""What holds of the share scheduler whatever happens: 1000 random schedules of containers, programs and mishaps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS
from plimsoll.names import GpuUuid
from tests.hook.broker.shares.schedules import Schedule, Tenant
from tests.hook.broker.shares.watch import LATE_NS, Watch

THOUSAND = settings(max_examples=1000, deadline=None, derandomize=True)


@pytest.mark.timeout(900)
@THOUSAND
@given(seed=st.integers(0, 2**32))
def test_whatever_happens(seed: int) -> None:
    """Lags cancel out, a GPU has one holder, nobody is charged for more than time, words step, limits hold, all get
    their requests and a turn, and the same events give the same instructions.
    """
    schedule = Schedule(seed)
    watch = Watch(schedule.world)
    schedule.run()
    before = _used(schedule)
    schedule.settle()
    for container in schedule.world.containers.values():
        if track := watch.limits.get(container.key):
            assert track.most_ns <= watch.allowed_over_ns(container), "it ran past its limit"
    if not schedule.befell:
        for tenant in schedule.tenants:
            if tenant.is_greedy:
                _got_its_request(schedule, watch, tenant, before)
                _had_its_turns(schedule, watch, tenant)
    _again(schedule)


def _used(schedule: Schedule) -> dict[str, int]:
    world = schedule.world
    used = {str(tenant.container.key): world.used_ns(tenant.container) for tenant in schedule.tenants}
    return used | {gpu: world.used_on_ns(GpuUuid(gpu)) for gpu in ("GPU-a", "GPU-b")}


def _turn_ns(schedule: Schedule, watch: Watch) -> float:
    """The longest turn: a quota, the longest kernel there, and what is queued behind it."""
    longest_ns = max(p.longest_ns for tenant in schedule.tenants for p in tenant.container.everyone)
    return watch.longest_quota_ns + 2 * longest_ns + schedule.settings.run_ahead_us * 1000 + LATE_NS


def _got_its_request(schedule: Schedule, watch: Watch, tenant: Tenant, before: dict[str, int]) -> None:
    """Of what was used of its fullest GPU it had its request: so hand-overs take from all alike."""
    used_ns = schedule.world.used_ns(tenant.container) - before[str(tenant.container.key)]
    request = tenant.container.terms.request_pct / 100
    short_ns = min(
        request * (schedule.world.used_on_ns(gpu) - before[gpu]) - used_ns
        for gpu in tenant.container.terms.gpus
    )
    assert short_ns <= _turn_ns(schedule, watch), "it did not get its request"


def _had_its_turns(schedule: Schedule, watch: Watch, tenant: Tenant) -> None:
    """Others run until its part makes up for a turn of everybody's, and for what they may claim of having idled."""
    request = tenant.container.terms.request_pct / 100
    if request >= 0.1:
        ahead_ns = (len(schedule.tenants) + 1) * _turn_ns(schedule, watch) + schedule.settings.window_ms * MS
        longest_ns = ahead_ns / request
        assert watch.longest_wait_ns.get(tenant.container.key, 0) <= longest_ns, "it starved"


def _again(schedule: Schedule) -> None:
    scheduler = Scheduler(schedule.settings)
    for event, steps in schedule.world.handled:
        assert scheduler.handle(event) == steps
