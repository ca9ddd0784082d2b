"""Containers on several GPUs: they hold the tokens of all at once, and nobody waits for ever."""

import pytest

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.shares import gates
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS, ShareSettings
from hook.broker.core.shares.turns import GateState, Joined, Reported, SetGate, ShareEvent, Terms, Ticked, Use
from plimsoll.names import ContainerName, GpuUuid, PodUid
from tests.hook.broker.shares.programs import greedy, looping, part_time
from tests.hook.broker.shares.tenants import ACCURACY_PCT, SPAN_S
from tests.hook.broker.shares.world import World


@pytest.mark.parametrize(
    ("requests", "shares"),
    [
        ((50, 50, 50), (50, 50, 50)),
        ((30, 70, 70), (30, 70, 70)),
        ((20, 80, 20), (20, 80, 80)),
        ((20, 20, 20), (50, 50, 50)),
    ],
)
def test_a_container_on_two_gpus_gets_its_part_of_both(
    requests: tuple[int, ...], shares: tuple[float, ...]
) -> None:
    """Beside a single one on each, it has both tokens at once, and its part of the fuller GPU."""
    world = World()
    gang = world.join("gang", requests[0], gpus=("GPU-a", "GPU-b"))
    a = world.join("a", requests[1], gpus=("GPU-a",))
    b = world.join("b", requests[2], gpus=("GPU-b",))
    for container in (gang, a, b):
        world.start(container, greedy(2 * MS))
    world.run(2.0)
    assert world.shares(SPAN_S, gang, a, b) == pytest.approx(shares, abs=ACCURACY_PCT)


def test_two_containers_on_several_gpus_never_wait_for_each_other() -> None:
    """Two on overlapping pairs of GPUs and a single one on each all get their requests."""
    world = World()
    gangs = [world.join("g", 30, gpus=("GPU-a", "GPU-b")), world.join("h", 30, gpus=("GPU-b", "GPU-c"))]
    singles = [
        world.join(gpu, request, gpus=(gpu,))
        for gpu, request in (("GPU-a", 70), ("GPU-b", 40), ("GPU-c", 70))
    ]
    for container in (*gangs, *singles):
        world.start(container, greedy(3 * MS))
    world.run(2.0)
    assert world.shares(SPAN_S, *gangs, *singles) == pytest.approx([30, 30, 70, 40, 70], abs=ACCURACY_PCT)


def test_who_waits_for_two_gpus_is_not_looked_after_all_the_time() -> None:
    """Its turn has come on one and not on the other: until it has, the broker looks some times in a quota."""
    world = World()
    world.join("gang", 0, gpus=("GPU-a", "GPU-b"))
    big, small = world.join("big", 100, gpus=("GPU-a",)), world.join("small", 0, gpus=("GPU-b",))
    world.join("other", 0, gpus=("GPU-a",))
    for container in world.containers.values():
        world.start(container, greedy(1 * MS))
    world.run(2.0)
    before = len(world.handled)
    assert min(world.shares(2.0, big, small)) >= 90
    ticks = sum(isinstance(event, Ticked) for event, _ in world.handled[before:])
    assert ticks < 600


def test_nobody_waits_for_a_gpu_that_is_kept_for_one_who_lost_another() -> None:
    """What was free for one of two GPUs goes to others as soon as its other GPU goes to somebody else."""
    world = World()
    last = world.join("last", 100, gpus=("GPU-b",))
    gang = world.join("gang", 0, gpus=("GPU-a", "GPU-b"))
    brief = world.join("brief", 0, gpus=("GPU-b",))
    single = world.join("single", 52, gpus=("GPU-a",))
    world.start(last, greedy(1 * MS))
    world.start(gang, looping(1 * MS))
    world.start(brief, part_time(20 * MS, 20 * MS, 200 * MS))
    world.start(single, greedy(3 * MS))
    assert world.shares(2.0, single)[0] >= 80


def test_who_has_work_anew_while_its_container_drains_is_waited_for() -> None:
    """One of two processes had drained, and follows what the other waits for: tokens are free when both are done."""
    scheduler = Scheduler(ShareSettings())
    gang, single = (ContainerKey(PodUid(name), ContainerName("main")) for name in ("gang", "single"))
    both = (GpuUuid("GPU-a"), GpuUuid("GPU-b"))
    words = {gang: 0, single: 0}

    def handle(event: ShareEvent) -> None:
        words.update(
            {step.container: step.word for step in scheduler.handle(event) if isinstance(step, SetGate)}
        )

    def report(
        container: ContainerKey, pid: int, ms: int, *, wants: bool = False, unfinished: bool = False
    ) -> None:
        now_ns, word = ms * MS, words[container]
        use = Use(0, now_ns if unfinished else 0)
        handle(
            Reported(
                container,
                ProcessKey(pid, 1),
                now_ns,
                wants=wants,
                unfinished=unfinished,
                use=use,
                gate_word=word,
            )
        )

    handle(Joined(gang, Terms(both, 50, 100), 0))
    handle(Joined(single, Terms(both[:1], 50, 100), 0))
    for pid in (1, 2):
        report(gang, pid, 1, wants=True)
    report(single, 3, 2, wants=True)
    handle(Ticked(200 * MS, {}))
    assert [gates.state_of(words[key]) for key in (gang, single)] == [GateState.SHUT, GateState.SHUT]
    report(gang, 1, 201)
    report(gang, 1, 202, unfinished=True)
    report(gang, 2, 203)
    assert gates.state_of(words[single]) is GateState.SHUT
    report(gang, 1, 204)
    assert gates.state_of(words[single]) is GateState.METERED
