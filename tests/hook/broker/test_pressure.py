"""Who waits, who goes on, and what can never happen: the pure core of waiting."""

from random import Random
from typing import Final, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook.broker.core.pressure import Grant
from hook.broker.core.wait_policies import WaitPolicyName, wait_policy
from plimsoll.names import GpuUuid
from tests.hook.broker.crowd import Crowd, key

NAMES: Final[tuple[WaitPolicyName, ...]] = get_args(WaitPolicyName)
A, B = GpuUuid("GPU-aaaa"), GpuUuid("GPU-bbbb")
USABLE: Final = 10


def crowd(name: WaitPolicyName = "fifo", usable_bytes: int = USABLE) -> Crowd:
    """One or two GPUs of the same size under a policy."""
    made = Crowd(wait_policy(name, b"seed"), Random(1))  # noqa: S311 - repeatable
    made.resize(A, usable_bytes)
    return made


def programs(random: Random, lines: dict[GpuUuid, int]) -> list[tuple[GpuUuid, int]]:
    """Takes and gives that stay within the lines and reach them."""
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
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_all_reach_their_lines_and_end(name: WaitPolicyName, seed: int) -> None:
    """On two GPUs promised many times over, every container ends by itself, and each wait gets one answer: go on."""
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
        assert node.runnable(), "all wait for each other"
        node.step(random.choice(node.runnable()))
    assert set(node.answers) == set(node.asked)
    assert all(isinstance(answer, Grant) for answer in node.answers.values())
    assert node.pressure.waits == ()
    assert not any(node.wanted.values())


def test_nobody_waits_where_the_lines_fit() -> None:
    """On a GPU that has all that was promised, everyone is granted its line, whatever the others hold."""
    node = crowd()
    node.join(key(0), {A: 6})
    node.join(key(1), {A: 4})
    assert [node.pressure.granted(key(n), A) for n in (0, 1)] == [6, 4]
    assert node.take(key(0), A, 6)
    assert node.take(key(1), A, 4)
    assert node.asked == {}


def test_nothing_is_granted_before_the_gpu_was_measured() -> None:
    """A process asks and waits until it is known how much there is, and then goes on."""
    node = Crowd(wait_policy("fifo", b""), Random(1))  # noqa: S311 - repeatable
    node.join(key(0), {A: 6})
    assert not node.take(key(0), A, 3)
    assert node.answers == {}
    node.resize(A, USABLE)
    assert node.take(key(0), A, 3)
