"""What containers get of a simulated GPU: requests, limits, the rest, turns, and what mishaps cost."""

from collections.abc import Callable
from itertools import product
from typing import Final

import pytest

from hook.broker.core.shares.settings import MS, US, ShareSettings
from hook.broker.core.shares.turns import GateState, SetGate
from plimsoll.layout import GATE_CONTENDED, GATE_STATES, GATE_STEP
from plimsoll.names import GpuUuid
from tests.hook.broker.shares.programs import Program, greedy, looping, part_time, serving
from tests.hook.broker.shares.tenants import ACCURACY_PCT, SPAN_S, tenants
from tests.hook.broker.shares.world import Container, World

KERNELS_NS: Final = (20 * US, 1 * MS, 20 * MS, 200 * MS)
PAIRS: Final = [((30, 70), k) for k in product(KERNELS_NS, repeat=2)]
PAIRS_10: Final = [((10, 90), k) for k in product(KERNELS_NS, repeat=2)]
PAIRS_50: Final = [((50, 50), k) for k in product(KERNELS_NS, repeat=2)]
THREES: Final = [((20, 30, 50), k) for k in product(KERNELS_NS, repeat=3)]


@pytest.mark.parametrize(("requests", "kernels_ns"), [*PAIRS, *PAIRS_10, *PAIRS_50, *THREES])
def test_greedy_tenants_get_what_they_request(requests: tuple[int, ...], kernels_ns: tuple[int, ...]) -> None:
    """Whatever their kernels, each is within 2 points of its request over 10 s, or within one kernel."""
    world = World()
    containers = tenants(world, requests, kernels_ns)
    world.run(1.0)
    allowed_pct = max(ACCURACY_PCT, 100 * max(kernels_ns) / (SPAN_S * 1e9))
    for share, request in zip(world.shares(SPAN_S, *containers), requests, strict=True):
        assert abs(share - request) <= allowed_pct


def test_a_sliding_window_forgets_where_an_account_does_not() -> None:
    """With kernels of 200 ms, request 10 beside 90 gets 10 %, where KubeShare's window of 1 s gives it 18 %."""
    world = World()
    small, _ = tenants(world, (10, 90), (200 * MS, 1 * MS))
    world.run(1.0)
    (share,) = world.shares(20.0, small)
    assert abs(share - 10) <= 1
    assert abs(window_share_pct(200 * MS, request=0.1, window_ns=1000 * MS) - 18) <= 1


def window_share_pct(kernel_ns: int, request: float, window_ns: int) -> float:
    """KubeShare §4.5: a turn whenever the use in the sliding window is below the request; the rest is another's."""
    turns: list[int] = []
    now_ns, end_ns, step_ns = 0, 60_000 * MS, 1 * MS
    while now_ns < end_ns:
        used_ns = sum(
            kernel_ns - max(0, now_ns - window_ns - begun)
            for begun in turns
            if begun + kernel_ns > now_ns - window_ns
        )
        if used_ns < request * window_ns:
            turns.append(now_ns)
            now_ns += kernel_ns
        else:
            now_ns += step_ns
    return 100 * len(turns) * kernel_ns / end_ns


def _wants(program: Callable[[int], Program], kernel_ns: int, limit: int) -> bool:
    """Whether it would use more than this: two thirds of the tightest loop are not the GPU's."""
    return program is greedy or kernel_ns > 20 * US or limit <= 40


@pytest.mark.parametrize(
    ("program", "kernel_ns", "limit"),
    [case for case in product((greedy, looping), KERNELS_NS, (30, 40, 50, 60)) if _wants(*case)],
)
def test_a_limit_holds_for_one_alone(program: Callable[[int], Program], kernel_ns: int, limit: int) -> None:
    """It gets its limit within a point over 10 s, and each second within 3, or within one kernel."""
    world = World()
    container = world.join("a", 20, limit)
    world.start(container, program(kernel_ns))
    world.run(1.0)
    seconds = [world.shares(1.0, container)[0] for _ in range(10)]
    kernel_pct = kernel_ns / 1e7 if kernel_ns > 20 * MS else 0.0
    assert abs(sum(seconds) / 10 - limit) <= max(1.0, kernel_pct / 10)
    assert max(abs(second - limit) for second in seconds) <= max(3.0, kernel_pct)


def test_a_part_time_program_gets_its_limit() -> None:
    """One that has work half of the time gets what its limit allows of that."""
    world = World()
    container = world.join("a", 20, 30)
    world.start(container, part_time(1 * MS, 100 * MS, 100 * MS))
    world.run(1.0)
    (share,) = world.shares(SPAN_S, container)
    assert 20 <= share <= 31


def test_the_rest_is_shared_as_in_figure_6() -> None:
    """KubeShare, Figure 6: A (.3, .6), B (.4, .6), C (.3, .5) come one after another, and C leaves."""
    world = World()
    a = world.join("A", 30, 60)
    world.start(a, greedy(5 * MS))
    world.run(0.5)
    assert world.shares(5.0, a) == pytest.approx([60], abs=1)
    b = world.join("B", 40, 60)
    world.start(b, greedy(5 * MS))
    world.run(0.5)
    assert world.shares(5.0, a, b) == pytest.approx([50, 50], abs=1)
    c = world.join("C", 30, 50)
    world.start(c, greedy(5 * MS))
    world.run(0.5)
    assert world.shares(5.0, a, b, c) == pytest.approx([30, 40, 30], abs=1)
    world.leave(c)
    world.run(world.settings.window_ms / 1000)
    assert world.shares(1.0, a, b) == pytest.approx([50, 50], abs=2)


@pytest.mark.parametrize("trainers", [1, 3])
def test_who_serves_requests_is_let_in_at_once(trainers: int) -> None:
    """2 ms of work every 20 ms, with request 20, waits for the run-ahead and a least hold, and no quota."""
    world = World()
    training = tenants(world, (60 // trainers,) * trainers, (1 * MS,) * trainers)
    server = world.join("server", 20)
    latencies_ns: list[int] = []
    world.start(server, serving(2 * MS, 20 * MS, lambda: world.now_ns, latencies_ns))
    world.run(3.0)
    latencies_ns.clear()
    shares = world.shares(SPAN_S, server, *training)
    latencies_ns.sort()
    queued_ns = world.settings.run_ahead_us * US + 1 * MS
    assert latencies_ns[len(latencies_ns) * 99 // 100] <= 2 * MS + queued_ns + 2 * MS + 1 * MS
    assert shares[0] == pytest.approx(10, abs=0.5)
    assert sum(shares) >= 93


def test_terms_change_while_it_runs() -> None:
    """New requests and limits hold from then on."""
    world = World()
    a, b = tenants(world, (30, 70), (1 * MS, 1 * MS))
    world.run(2.0)
    world.join("c1", 30)
    world.join("c0", 70)
    assert world.shares(5.0, a, b) == pytest.approx([70, 30], abs=2)
    world.join("c0", 20, 20)
    assert world.shares(5.0, a, b) == pytest.approx([20, 80], abs=2)
    world.join("c0", 20, 100)
    assert world.shares(5.0, a, b) == pytest.approx([45, 55], abs=8)


def test_the_first_hand_over_waits_for_what_was_queued_unmetered() -> None:
    """Who runs with an open gate has told nothing; its work ends before another's begins."""
    world = World()
    a = world.join("a", 50)
    world.start(a, greedy(20 * MS))
    world.run(0.5)
    b = world.join("b", 50)
    world.start(b, greedy(1 * MS))
    shares = world.shares(0.2, a, b)
    assert min(shares) > 0
    assert sum(shares) <= 100.1


@pytest.mark.parametrize("moment_s", [0.503, 0.51, 0.52, 0.53])
def test_others_go_on_when_one_is_stopped(moment_s: float) -> None:
    """After SIGSTOP, others have the GPU as soon as the grace is over; after SIGCONT, both have their shares."""
    world = World()
    a, b = tenants(world, (50, 50), (1 * MS, 1 * MS))
    world.run(2 + moment_s)
    a.processes[0].stop()
    world.run(world.settings.grace_ms / 1000 + 0.2)
    assert world.shares(3.0, b)[0] >= 99
    a.processes[0].resume()
    world.run(1.0)
    assert world.shares(5.0, a, b) == pytest.approx([50, 50], abs=ACCURACY_PCT)
    charged = world.scheduler.uses(a.key, world.now_ns)
    assert charged is not None
    assert charged.busy_s == pytest.approx(world.used_ns(a) / 1e9, abs=0.05)


def test_two_processes_of_one_container_have_one_budget() -> None:
    """A container with three processes gets no more than one with one."""
    world = World()
    a, b = tenants(world, (50, 50), (1 * MS, 1 * MS))
    world.start(a, greedy(3 * MS))
    world.start(a, looping(1 * MS, 5 * MS))
    world.run(2.0)
    assert world.shares(SPAN_S, a, b) == pytest.approx([50, 50], abs=ACCURACY_PCT)


def test_who_was_promised_nothing_is_never_stopped_for_ever() -> None:
    """Beside requests of 70 and 30, two with request 0 still get something; the others what they were promised."""
    world = World()
    containers = tenants(world, (70, 30, 0, 0), (1 * MS,) * 4)
    world.run(2.0)
    shares = world.shares(30.0, *containers)
    assert shares[:2] == pytest.approx([70, 30], abs=ACCURACY_PCT)
    assert min(shares[2:]) >= 0.2


@pytest.mark.parametrize(("requests", "least_pct"), [((50, 50), 45), ((10, 90), 81), ((1, 99), 89)])
@pytest.mark.parametrize(("kernel_ns", "gap_ns"), [(20 * US, 400 * US), (50 * US, 300 * US)])
def test_turns_left_unused_are_not_paid_by_others(
    requests: tuple[int, int], least_pct: float, kernel_ns: int, gap_ns: int
) -> None:
    """Beside one whose kernels are short and whose pauses are too short to give its turn up for, a greedy one still
    gets nine tenths of its request: a turn counts as used, however little was done in it.
    """
    world = World()
    wasteful, other = world.join("wasteful", requests[0]), world.join("other", requests[1])
    world.start(wasteful, looping(kernel_ns, gap_ns))
    world.start(other, greedy(1 * MS))
    world.run(1.0)
    shares = world.shares(SPAN_S, wasteful, other)
    assert shares[0] > 0
    assert shares[1] >= least_pct
    assert other.key not in {told.container for told in world.unmet}


def is_open(container: Container) -> bool:
    """Whether nothing of it is metered."""
    return container.state is GateState.OPEN


def test_nobody_is_metered_for_nothing() -> None:
    """Alone and without a limit its gate is open; beside others once none wanted its GPU for `relax_s`; and no longer
    when somebody does. Meanwhile nothing is due.
    """
    world = World(ShareSettings(relax_s=2.0))
    a = world.join("a", 50)
    assert is_open(a)
    b = world.join("b", 50)
    world.start(a, greedy(1 * MS))
    process = world.start(b, greedy(1 * MS))
    world.run(1.0)
    assert not is_open(a)
    assert not is_open(b)
    world.kill(process)
    world.run(1.5)
    assert not is_open(a)
    world.run(1.0)
    assert is_open(a)
    assert world.scheduler.due_ns is None
    world.start(b, greedy(1 * MS))
    world.run(0.5)
    assert world.shares(5.0, a, b) == pytest.approx([50, 50], abs=ACCURACY_PCT)


def test_whole_gpus_are_never_scheduled() -> None:
    """A container that owns its GPUs has an open gate for ever."""
    world = World()
    whole = world.join("whole", 0, gpus=("GPU-w", "GPU-x"), whole=True)
    tenants(world, (50, 50), (1 * MS, 1 * MS))
    word = whole.word
    world.run(2.0)
    assert whole.state is GateState.OPEN
    assert whole.word == word
    use = world.scheduler.uses(whole.key, world.now_ns)
    assert use is not None
    assert use.state is GateState.OPEN


def test_a_new_broker_takes_running_programs_over() -> None:
    """Words go on from where they were, what was used before is nobody's debt, and shares hold again."""
    world = World()
    a, b = tenants(world, (30, 70), (1 * MS, 1 * MS))
    world.run(3.0)
    words = (a.word, b.word)
    world.restart_broker()
    assert a.word // GATE_STEP > words[0] // GATE_STEP
    assert b.word // GATE_STEP > words[1] // GATE_STEP
    world.run(0.5)
    assert world.shares(5.0, a, b) == pytest.approx([30, 70], abs=ACCURACY_PCT)
    charged = world.scheduler.uses(a.key, world.now_ns)
    assert charged is not None
    assert charged.busy_s < 3


def test_a_new_broker_opens_no_gate_that_was_not_open() -> None:
    """It hears of one container before the other: what the first could queue unmetered, others would wait for."""
    world = World(ShareSettings(relax_s=2.0))
    containers = tenants(world, (50, 50), (20 * MS, 20 * MS))
    world.run(1.0)
    before = len(world.handled)
    world.restart_broker()
    world.run(5.0)
    words = [step.word for _, steps in world.handled[before:] for step in steps if isinstance(step, SetGate)]
    assert words
    assert GateState.OPEN not in {GateState(word & GATE_STATES) for word in words}
    world.leave(containers[1])
    world.restart_broker()
    world.run(1.0)
    assert not is_open(containers[0])
    world.run(2.0)
    assert is_open(containers[0])


def test_a_holder_is_told_whether_others_wait() -> None:
    """Only then does its gate say so."""
    world = World()
    a, b = tenants(world, (50, 50), (1 * MS, 1 * MS))
    process = b.processes[0]
    world.run(1.0)
    holder = a if a.state is GateState.METERED else b
    assert holder.word & GATE_CONTENDED
    world.kill(process)
    world.run(0.5)
    assert a.state is GateState.METERED
    assert not a.word & GATE_CONTENDED


def test_the_quota_follows_what_a_hand_over_costs() -> None:
    """It comes to a hundred times the measured gap, within its bounds; with equal bounds it stays."""
    world = World()
    tenants(world, (50, 50), (1 * MS, 1 * MS))
    world.run(5.0)
    quota = world.scheduler._gpus[GpuUuid("GPU-a")].quota
    assert 10 * MS <= quota.quota_ns <= 25 * MS
    fixed = World(ShareSettings(quota_ms=40.0, quota_least_ms=40.0, quota_most_ms=40.0))
    tenants(fixed, (50, 50), (1 * MS, 1 * MS))
    fixed.run(2.0)
    assert fixed.scheduler._gpus[GpuUuid("GPU-a")].quota.quota_ns == 40 * MS


def test_everybody_greedy_and_served_is_told_of_nothing() -> None:
    """Where requests are met, nobody is named."""
    world = World(ShareSettings(unmet_s=1.0))
    tenants(world, (20, 30, 50), (1 * MS, 20 * MS, 3 * MS))
    world.run(8.0)
    assert world.unmet == []
