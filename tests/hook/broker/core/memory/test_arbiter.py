"""The rules of waiting in the pure core: order, progress, and invariants."""

from random import Random
from typing import Final, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook.broker.core.memory.arbiter import Allow, AnnouncePaused, MemoryArbiter, Refuse
from hook.broker.core.memory.holdings import LASTING_S, PROMISE_S
from hook.broker.core.memory.policies import WaitPolicyName, wait_policy
from hook.broker.core.memory.policies.policy import WaitingRequest, WaitTicket
from plimsoll.ids import GpuUuid
from tests.hook.broker.core.memory.crowd import Crowd, key
from tests.slow import examples

NAMES: Final[tuple[WaitPolicyName, ...]] = get_args(WaitPolicyName)
A, B = GpuUuid("GPU-aaaa"), GpuUuid("GPU-bbbb")
USABLE: Final = 10


def crowd(name: WaitPolicyName = "fifo", usable_bytes: int = USABLE) -> Crowd:
    """One or two GPUs of the same size under a policy."""
    made = Crowd(wait_policy(name, b"seed"), Random(1))  # noqa: S311 - repeatable
    made.resize(A, usable_bytes)
    return made


def programs(random: Random, lines: dict[GpuUuid, int]) -> list[tuple[GpuUuid, int]]:
    """Programs of takes and frees that stay within the lines and reach them."""
    ops: list[tuple[GpuUuid, int]] = []
    used = dict.fromkeys(lines, 0)
    for _ in range(random.randint(1, 8)):
        gpu = random.choice(list(lines))
        size = random.randint(-used[gpu], lines[gpu] - used[gpu])
        if size:
            used[gpu] += size
            ops.append((gpu, size))
    return [*ops, *((gpu, lines[gpu] - used[gpu]) for gpu in lines if lines[gpu] > used[gpu])]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_all_reach_their_lines_and_end(name: WaitPolicyName, seed: int) -> None:
    """On two GPUs promised many times over, every container ends by itself, and each wait ends with memory."""
    random = Random(seed)  # noqa: S311 - repeatable
    node = Crowd(wait_policy(name, b"seed"), random)
    node.resize(A, USABLE)
    node.resize(B, USABLE)
    coming = random.randint(2, 9)
    for number in range(coming):
        lines = {gpu: random.randint(1, USABLE) for gpu in random.choice([(A,), (B,), (A, B), (B, A)])}
        if random.random() < 0.5:
            node.join(key(number), lines, programs(random, lines))
            continue
        for _ in range(random.randint(0, 10)):
            if node.runnable():
                node.step(random.choice(node.runnable()))
        node.join(key(number), lines, programs(random, lines))
    while node.members:
        assert node.runnable(), "every container waits for another"
        node.step(random.choice(node.runnable()))
    assert set(node.answers) == set(node.asked)
    assert all(isinstance(answer, Allow) for answer in node.answers.values())
    assert node.arbiter.waits == ()
    assert not any(node.wanted.values())


def test_nobody_waits_where_the_lines_fit() -> None:
    """On a GPU that has all promised memory, each container is granted its line, whatever the others hold."""
    node = crowd()
    node.join(key(0), {A: 6})
    node.join(key(1), {A: 4})
    assert [node.arbiter.granted(key(n), A) for n in (0, 1)] == [6, 4]
    assert node.take(key(0), A, 6)
    assert node.take(key(1), A, 4)
    assert node.asked == {}


def test_nothing_is_granted_before_the_gpu_was_measured() -> None:
    """A process that asks before the GPU was measured waits until it was, and then goes on."""
    node = Crowd(wait_policy("fifo", b""), Random(1))  # noqa: S311 - repeatable
    node.join(key(0), {A: 6})
    assert not node.take(key(0), A, 3)
    assert node.answers == {}
    node.resize(A, USABLE)
    assert node.take(key(0), A, 3)


@settings(max_examples=examples(50))
@given(seed=st.integers(0, 2**32))
def test_under_fifo_nobody_who_holds_nothing_passes_an_older_one(seed: int) -> None:
    """While an older container waits, no younger one that holds nothing is let in, so each gets its turn."""
    random = Random(seed)  # noqa: S311 - repeatable
    node = Crowd(wait_policy("fifo", b""), random)
    node.resize(A, USABLE)
    for number in range(8):
        line = random.randint(1, USABLE)
        node.join(key(number), {A: line}, programs(random, {A: line}))
    while node.members:
        before = {ticket: node.asked[ticket][0] for ticket in node.asked if ticket not in node.answers}
        held = {name: sum(member.used.values()) for name, member in node.members.items()}
        node.step(random.choice(node.runnable()))
        granted = [name for ticket, name in before.items() if ticket in node.answers]
        left = [name for ticket, name in before.items() if ticket not in node.answers]
        assert not [
            (name, older) for name in granted for older in left if older.pod < name.pod and not held[name]
        ]


@settings(max_examples=examples(100))
@given(seed=st.integers(0, 2**32))
def test_no_wait_hangs_when_a_gpu_shrinks_and_lines_rise(seed: int) -> None:
    """If memory vanishes under a safe state, every wait still ends: with memory, or refused with the reason."""
    random = Random(seed)  # noqa: S311 - repeatable
    node = Crowd(wait_policy(random.choice(NAMES), b""), random)
    node.resize(A, USABLE)
    node.resize(B, USABLE)
    for number in range(6):
        lines = {gpu: random.randint(1, USABLE) for gpu in random.choice([(A,), (B,), (A, B)])}
        node.join(key(number), lines, programs(random, lines))
    for _ in range(random.randint(0, 30)):
        if node.runnable():
            node.step(random.choice(node.runnable()))
    node.shrink(A, random.randint(1, USABLE))
    while node.members:
        if not node.runnable():
            node.pass_time()
        assert node.runnable(), "every container waits for another"
        node.step(random.choice(node.runnable()))
    assert set(node.answers) == set(node.asked)


def test_a_policy_orders_those_who_wait() -> None:
    """The policies are ConVGPU's. The three waiting containers are the best fit, the oldest, and the last comer."""
    free_bytes = 5

    def waiting(ticket: int, missing_bytes: int, enrolled: int, *, can_go_on: bool = True) -> WaitingRequest:
        asked = WaitTicket(ticket)
        return WaitingRequest(
            asked, key(ticket), A, missing_bytes, missing_bytes, enrolled, ticket, can_go_on
        )

    crowd = [waiting(0, 3, 2), waiting(1, 5, 1), waiting(2, 9, 3, can_go_on=False), waiting(3, 2, 4)]
    chosen = {name: wait_policy(name, b"1").choose(crowd, free_bytes).ticket for name in NAMES}
    assert (chosen["fifo"], chosen["best-fit"], chosen["recent-use"]) == (1, 1, 3)
    assert wait_policy("best-fit", b"").choose(crowd[2:3], free_bytes).ticket == 2
    drawn = {wait_policy("random", bytes([seed])).choose(crowd, free_bytes).ticket for seed in range(50)}
    assert drawn == {0, 1, 2, 3}
    assert len({wait_policy("random", b"1").choose(crowd, free_bytes).ticket for _ in range(9)}) == 1


def test_a_wait_is_told_at_once_and_again_and_ends_at_the_longest() -> None:
    """A wait is announced when it begins and at intervals, and refused after the longest wait."""
    core = MemoryArbiter(wait_policy("fifo", b""), remind_s=10, longest_wait_s=25)
    core.capacity(A, USABLE)
    core.enrol(key(0), {A: USABLE})
    core.enrol(key(1), {A: USABLE})
    held = {key(0): USABLE, key(1): 0}
    core.ask(WaitTicket(7), key(1), A, 4, now_s=100)
    steps = {now_s: core.take_used(A, held, now_s) for now_s in (100, 105, 110, 124, 125)}
    assert AnnouncePaused(WaitTicket(7), "others hold it", 0) in steps[100]
    assert steps[105] == ()
    assert steps[110] == (AnnouncePaused(WaitTicket(7), "others hold it", 10),)
    assert Refuse(WaitTicket(7), "it has waited for 25 s", 25) in steps[125]
    assert core.waits == ()


def test_what_is_promised_is_kept_until_it_is_used_or_late() -> None:
    """A resumed container finds its memory though another waits for it. A thread that stands still loses it."""
    core = MemoryArbiter(wait_policy("recent-use", b""))
    core.capacity(A, USABLE)
    for number in (0, 1):
        core.enrol(key(number), {A: USABLE})
    held = {key(0): USABLE, key(1): 0}
    core.ask(WaitTicket(0), key(1), A, 6, now_s=0)
    core.take_used(A, held, 0)
    held = {key(0): 0, key(1): 0}
    core.take_used(A, held, 1)
    assert Allow(WaitTicket(0), 1) in core.take_used(A, held, 1)
    core.ask(WaitTicket(1), key(0), A, 6, now_s=2)
    assert not any(isinstance(step, Allow) for now_s in (2, 3, 4) for step in core.take_used(A, held, now_s))
    late = [step for _ in range(2) for step in core.take_used(A, held, 1 + PROMISE_S)]
    assert Allow(WaitTicket(1), PROMISE_S - 1) in late


def test_a_line_past_the_gpu_and_one_past_its_own_container_are_refused() -> None:
    """A request that could not be met on an empty GPU fails at once.

    A request that its own container's memory blocks fails soon.
    """
    node = crowd()
    node.join(key(0), {A: 3 * USABLE})
    node.join(key(1), {A: USABLE})
    assert not node.take(key(0), A, USABLE + 1)
    assert node.take(key(0), A, 4)
    node.take(key(0), A, USABLE - 3)
    node.now_s += 1
    node.carry_out(node.look(A))
    reasons = [answer.reason for answer in node.answers.values() if isinstance(answer, Refuse)]
    assert reasons == ["it is more than this GPU has for containers"] * 2


def test_no_wait_is_refused_for_less_that_does_not_last() -> None:
    """A wait is refused only for a lasting lack of memory.

    A measurement may precede the return of an ended process's memory.
    """
    core = MemoryArbiter(wait_policy("fifo", b""))
    core.capacity(A, USABLE)
    for number in (0, 1):
        core.enrol(key(number), {A: USABLE})
        core.ask(WaitTicket(number), key(number), A, 4, now_s=0)

    def refused(usable_bytes: int, now_s: float) -> list[WaitTicket]:
        core.capacity(A, usable_bytes)
        steps = core.take_used(A, {key(0): 3, key(1): 3}, now_s)
        return [step.ticket for step in steps if isinstance(step, Refuse)]

    for began_s in (0, 100):
        for passed_s in (0, 1, LASTING_S - 1):
            assert refused(3, began_s + passed_s) == []
        assert refused(6, began_s + LASTING_S) == []
        core.capacity(A, USABLE)
    told = [ticket for n in range(8) for ticket in refused(3, 200 + n * LASTING_S / 2)]
    assert sorted(told) == [0, 1]
    assert core.waits == ()
