"""The scheduler's gates and sums after each event."""

import pytest

from hook.broker.core.shares.events import GateState, Joined, ShareTerms, Utilised
from hook.broker.core.shares.settings import DEBT_NS, MS, SAVED_NS, SPARE_NS, S
from plimsoll.broker.pages import GATE_STEP
from tests.hook.broker.core.shares.node import GPUS, TICK_NS, Node, key, two

OPEN, METERED, SHUT = GateState.OPEN, GateState.METERED, GateState.SHUT


# Open gates.


def test_a_container_alone_is_not_metered() -> None:
    """A container without others, or beside others without a process, is not metered and needs no ticks."""
    node = Node()
    node.join("A", 50)
    node.join("B", 50)
    node.start("A", 1)
    assert node.states == {"A": OPEN, "B": METERED}
    assert not node.scheduler.needs_ticks


def test_beside_one_that_idles_a_container_is_not_metered() -> None:
    """Beside a working container only the idle one is metered, so that its first launch is seen."""
    node, a, _ = two()
    a.work(node.now_ns)
    node.tick(10)
    assert node.states == {"A": OPEN, "B": METERED}
    assert node.scheduler.needs_ticks


def test_a_first_launch_is_seen_at_the_next_tick() -> None:
    """After the idle container's first launch both are metered, and neither is charged for the time before."""
    node, a, b = two()
    a.work(node.now_ns)
    node.tick(100)
    b.work(node.now_ns + MS)
    node.tick()
    assert node.states == {"A": METERED, "B": METERED}
    assert node.use("A").busy_s == 0
    node.tick()
    assert node.use("A").busy_s == pytest.approx(0.0025)


def test_after_a_second_alone_a_gate_is_open_again() -> None:
    """A gate opens after a second alone and not sooner.

    A container that launches every half second keeps others metered.
    """
    node, a, b = two()
    a.work(node.now_ns)
    b.work(node.now_ns)
    node.tick(20)
    b.rest(unfinished_ns=100 * MS)
    node.tick(199)
    assert node.states == {"A": METERED, "B": METERED}
    node.tick(3)
    assert node.states == {"A": OPEN, "B": METERED}


def test_of_two_that_idle_one_has_the_open_gate() -> None:
    """One of two idle containers has the open gate. The first launch of either is seen."""
    node, _, b = two()
    node.tick(500)
    assert node.states == {"A": OPEN, "B": METERED}
    b.work(node.now_ns)
    node.tick()
    assert node.states == {"A": METERED, "B": METERED}
    node.tick(210)
    assert node.states == {"A": METERED, "B": OPEN}


def test_one_of_several_gpus_is_open_only_where_all_are_its_own() -> None:
    """A rival on one of a container's GPUs has the container metered on both."""
    node = Node()
    node.join("A", 50, gpus=2)
    node.join("B", 50, gpus=1)
    a, b = node.start("A", 1, gpus=2), node.start("B", 2)
    a.work(node.now_ns, place=1)
    node.tick()
    b.work(node.now_ns)
    node.tick()
    assert node.states == {"A": METERED, "B": METERED}
    node.end(b)
    assert node.states["A"] is OPEN


def test_a_limit_is_metered_alone() -> None:
    """A container alone with a limit needs ticks once it has a process."""
    node = Node()
    node.join("A", 30, 50)
    assert (node.states["A"], node.scheduler.needs_ticks) == (METERED, False)
    node.start("A", 1)
    assert (node.states["A"], node.scheduler.needs_ticks) == (METERED, True)


def test_whole_gpus_are_open_and_have_no_share() -> None:
    """A whole GPU's gate is open beside any other containers on the node."""
    node, _, _ = two()
    node.join("W", whole=True)
    node.start("W", 9)
    assert node.states["W"] is OPEN
    assert node.use("W").busy_s == 0


# Accounts.


def test_a_spent_credit_is_saved_again_before_the_gate_opens() -> None:
    """With a limit of 50 the gate shuts after half of the time, until enough credit is saved."""
    node = Node()
    node.join("A", 50, 50)
    a = node.start("A", 1)
    a.work(node.now_ns)
    node.tick(2)
    assert node.states["A"] is SHUT
    a.rest(unfinished_ns=10 * MS, sure_ns=2 * MS, sliced_ns=8 * MS)
    a.stand()
    ticks = 0
    while node.states["A"] is SHUT:
        node.tick()
        ticks += 1
    debt_ns = 5 * MS + SAVED_NS / 2
    assert ticks * TICK_NS * 0.5 == pytest.approx(debt_ns, abs=2 * TICK_NS)


def test_changed_terms_leave_the_accounts() -> None:
    """New terms hold from now on, and keep the container's lag."""
    node, a, b = two(30, 70)
    a.work(node.now_ns)
    b.work(node.now_ns)
    node.tick(10)
    before = node.account("A").lag_ns
    assert before < 0
    node.join("A", 50, 60)
    assert node.account("A").lag_ns == before
    bounds = node.account("A").bounds
    assert (bounds.request, bounds.limit) == (0.5, 0.6)
    assert node.use("A").terms.limit_pct == 60


def test_a_tick_that_comes_late_is_charged_for_what_the_words_say() -> None:
    """After a broker stood still for 2 s all of the time is charged, and sums stay within their bounds."""
    node, a, b = two(30, 70)
    a.work(node.now_ns)
    b.work(node.now_ns)
    node.tick(2)
    before = node.use("A").busy_s
    node.tick(span_ns=2 * S)
    assert node.use("A").busy_s - before == pytest.approx(1.0)
    assert abs(node.account("A").lag_ns) <= DEBT_NS
    node.tick(2)
    assert node.account("B").spare_ns <= SPARE_NS + TICK_NS


def test_what_a_process_had_at_its_death_is_charged() -> None:
    """A dead process's last work is charged, also if a new process takes its slot over before the next tick."""
    node, a, b = two()
    a.work(node.now_ns)
    b.work(node.now_ns)
    node.tick(2)
    node.now_ns += 3 * MS
    before = node.use("B").busy_s
    node.end(b)
    heir = node.start("B", 3)
    heir.work(node.now_ns)
    node.now_ns -= 3 * MS
    node.tick()
    assert node.use("B").busy_s - before == pytest.approx(0.0025, abs=0.0006)


def test_what_could_not_be_read_is_charged_later() -> None:
    """A container whose page is left out of a tick wants nothing then. The next tick charges all of its work."""
    node, a, b = two()
    a.work(node.now_ns)
    b.work(node.now_ns)
    node.tick(2)
    before = node.use("A").busy_s
    unread = node.processes.pop(a.number)
    node.tick()
    assert node.use("A").busy_s == before
    node.processes[a.number] = unread
    node.tick(20)
    assert node.use("A").busy_s > before


def test_a_process_that_was_there_before_is_charged_from_now_on() -> None:
    """A new broker charges a process only for work since the broker's start."""
    node = Node()
    node.join("A", 30, 50)
    a = node.start("A", 1, is_new=False)
    a.rest(unfinished_ns=3600 * S, sure_ns=S, sliced_ns=3599 * S)
    node.tick(10)
    assert node.use("A").busy_s == 0
    assert node.states["A"] is METERED


def test_gates_tell_how_many_share_the_fullest_gpu() -> None:
    """A gate has the number of containers with work on its fullest GPU.

    It rises at once when more come, and falls a while after they end.
    """
    node, a, b = two()
    others = [node.start("B", n) for n in (3, 4)]
    for played in (a, b, *others):
        played.work(node.now_ns)
    node.tick(2)
    assert node.sharers == {"A": 4, "B": 4}
    for played in (b, *others):
        played.rest(unfinished_ns=TICK_NS)
    node.tick(300)
    assert node.sharers == {"A": 1, "B": 1}


def test_sixteen_gpus_have_accounts_of_their_own() -> None:
    """A container on sixteen GPUs is shut for the one GPU on which it is ahead."""
    node = Node()
    node.join("A", 10, gpus=16)
    node.join("B", 90, gpus=16)
    a, b = node.start("A", 1, gpus=16), node.start("B", 2, gpus=16)
    node.tick()
    for played in (a, b):
        played.work(node.now_ns, place=15)
    node.tick(30)
    assert node.states["A"] is SHUT
    assert node.account("A", 15).lag_ns < 0 == node.account("A", 0).lag_ns


def test_words_of_the_gate_count_on() -> None:
    """The words of a gate continue those of an earlier broker.

    A state that the file already has is not written again.
    """
    node = Node()
    word = 7 * GATE_STEP + SHUT.value
    node.handle(Joined(key("A"), ShareTerms(GPUS[:1], 30, 50), node.now_ns, word))
    assert node.words["A"] == 8 * GATE_STEP + METERED.value
    node.handle(Joined(key("W"), ShareTerms(GPUS[1:2], 30, 50, whole=True), node.now_ns, 2**32 - 1))
    assert node.words["W"] == OPEN.value


def test_a_container_that_left_is_forgotten() -> None:
    """A removed container is forgotten with its processes' words, and the other container is alone."""
    node, a, b = two()
    a.work(node.now_ns)
    b.work(node.now_ns)
    node.tick(2)
    node.leave("B")
    assert node.states["A"] is OPEN
    node.tick(2)
    assert node.scheduler.uses(key("B"), node.now_ns) is None


# Reports.


@pytest.mark.parametrize("is_tick_first", [True, False])
def test_the_time_of_a_stopped_broker_is_not_charged(*, is_tick_first: bool) -> None:
    """The words and NVML's figures do not count for the time in which the broker was stopped and gates were open."""
    node = Node()
    node.join("A", 30, 30)
    a = node.start("A", 1)
    node.handle(Utilised(GPUS[0], node.now_ns, {}))
    node.tick(200)
    a.work(node.now_ns)
    node.tick()
    account, meter = node.account("A"), node.scheduler._processes[1].places[0][2]
    charged_ns = account.history.ran_ns
    if is_tick_first:
        node.tick(span_ns=6 * S)
        node.handle(Utilised(GPUS[0], node.now_ns, {1: 100}))
    else:
        node.now_ns += 6 * S
        node.handle(Utilised(GPUS[0], node.now_ns, {1: 100}))
        node.tick()
    assert account.history.ran_ns == charged_ns
    assert account.credit_ns >= -5 * MS
    a.work(node.now_ns)
    node.tick(200)
    node.handle(Utilised(GPUS[0], node.now_ns, {1: 100}))
    assert meter.correction.factor == 1.0


def test_the_first_work_after_an_idle_time_is_charged() -> None:
    """After a time in which nothing needed ticks, a new process's work counts from its beginning."""
    node = Node()
    node.join("A", 30, 30)
    node.end(node.start("A", 1))
    node.tick()
    node.now_ns += 10 * S
    a = node.start("A", 2)
    a.work(node.now_ns)
    node.tick(2)
    assert node.use("A").busy_s == pytest.approx(0.01)
