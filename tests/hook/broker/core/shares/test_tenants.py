"""Several greedy containers each get their request.

Figures are in percent of the GPU's time.
"""

from collections.abc import Sequence

import pytest

from hook.broker.core.shares.events import UnmetSpan
from tests.hook.broker.core.shares.model import MS, Container, Program, Simulation
from tests.hook.broker.core.shares.programs import greedy, locked, share, sync
from tests.slow import quick_and_slow


def _worst(*containers: Container, span: float = 10_000.0) -> float:
    """The largest distance of a share from its request."""
    simulation = Simulation(containers, span=span)
    assert not [step for step in simulation.instructions if isinstance(step, UnmetSpan)]
    return max(abs(share(simulation, one) - 100 * one.request) for one in containers)


@pytest.mark.parametrize("first", quick_and_slow([30], [10, 50]))
@pytest.mark.parametrize("own", quick_and_slow([1, 20], [0.02, 200]))
@pytest.mark.parametrize("others", [1, 200])
def test_two_have_what_they_requested(first: int, own: float, others: float) -> None:
    """Two containers get their requests for kernels of any length."""
    one = Container("a", first / 100, 1, [greedy(own)])
    other = Container("b", 1 - first / 100, 1, [greedy(others)])
    assert _worst(one, other) <= 1


def test_three_have_what_they_requested() -> None:
    """Three containers with kernels of different lengths get their requests; one program waits for each kernel."""
    containers = [
        Container("20", 0.2, 1, [greedy(1)]),
        Container("30", 0.3, 1, [greedy(20)]),
        Container("50", 0.5, 1, [sync(1)]),
    ]
    assert _worst(*containers) <= 1


def test_four_processes_have_no_more_than_one() -> None:
    """A container with four processes gets no more than one with one.

    The hardware slices by process, and shares are by container.
    """
    assert _worst(Container("20", 0.2, 1, [greedy(1)] * 4), Container("80", 0.8, 1, [greedy(1)])) <= 1


@pytest.mark.slow
def test_thirty_have_equal_parts() -> None:
    """Thirty containers with kernels of three lengths get equal shares."""
    thirty = [Container(str(i), 1 / 30, 1, [greedy((0.1, 1, 20)[i % 3])]) for i in range(30)]
    assert _worst(*thirty) <= 1


class _Stalled(Simulation):
    """After 3 s the accounts have these lags, in ms, as after stalls of the host."""

    def __init__(self, containers: Sequence[Container], lags: Sequence[float]) -> None:
        self.lags = dict(zip(containers, lags, strict=True))
        super().__init__(containers)

    def _account(self) -> None:
        if self.now > 3000:
            for container, lag in self.lags.items():
                self.scheduler._tenants[container.key].accounts[0].lag_ns = lag * MS
            self.lags.clear()
        super()._account()


@pytest.mark.parametrize("lags", [(100, 100), (300, -300), (500, 0), (500, 500)])
def test_claims_leave_no_gpu_idle(lags: tuple[float, float]) -> None:
    """Containers that are behind hold no other one up for claims that a limit, or the other's claim, keeps from use.

    They once stood for each other's claims for ever, each at its request, with half of the GPU idle.
    """
    limited = Container("limited", 0.1, 0.2, [greedy(1)])
    other = Container("other", 0.4, 1, [greedy(1)])
    _Stalled([limited, other], lags)
    assert limited.seconds[4:10] == pytest.approx([200] * 6, abs=30)
    assert other.seconds[4:10] == pytest.approx([800] * 6, abs=30)


def test_slices_that_are_not_equal_are_corrected_by_nvml() -> None:
    """A container whose process has slices twice as long gets its request after some seconds.

    Without the correction it would always get two thirds.
    """
    first, second = Container("50", 0.5, 1, [greedy(1)], slices=2), Container("51", 0.5, 1, [greedy(1)])
    assert share(Simulation([first, second]), first) == pytest.approx(50, abs=4)
    assert [each / 10 for each in first.seconds[4:-1]] == pytest.approx([50] * 6, abs=1.5)


@pytest.mark.parametrize("kernels", [(20, 20, 20), (1, 20, 0.02), (20, 0.02, 1)])
def test_three_that_start_together_after_a_pause_have_what_they_requested(kernels: tuple[float, ...]) -> None:
    """Each container may run ahead of its request at first, and pays that back."""
    requests = (0.2, 0.3, 0.5)
    containers = [
        Container(f"{100 * request:.0f}", request, 1, [greedy(own, start=2000)])
        for request, own in zip(requests, kernels, strict=True)
    ]
    Simulation(containers)
    shares = [sum(one.seconds[2:6]) / 40 for one in containers]
    assert shares == pytest.approx([20, 30, 50], abs=1.25)


@pytest.mark.parametrize("life", [30, 50])
def test_processes_that_come_and_go_pay_for_all_they_had(life: float) -> None:
    """A hundred processes of at most 50 ms together get their container's share."""
    brief = [greedy(1, start=50 * i, stop=50 * i + life) for i in range(100)]
    assert _worst(Container("30", 0.3, 1, brief), Container("70", 0.7, 1, [greedy(1)]), span=5000.0) <= 2


def test_one_that_idled_has_its_share_at_once() -> None:
    """A container that idled gets its share in its first second."""
    idle = Container("idle", 0.5, 1, [greedy(1)], start=5000)
    Simulation([idle, Container("g", 0.5, 1, [greedy(1)])])
    assert idle.seconds[5] / 10 == pytest.approx(50, abs=5)


def test_one_that_was_alone_makes_room_within_the_time_it_may_run_ahead() -> None:
    """A container with a request of 90 comes upon 100 ms of work queued behind an open gate.

    Half a second later it has its share.
    """
    new = Container("90", 0.9, 1, [greedy(1)], start=2000)
    Simulation([new, Container("10", 0.1, 1, [greedy(20, most=100)])], span=4000.0)
    assert new.seconds[2] / 10 > 80
    assert new.seconds[3] / 10 > 85


def test_figure_6_of_kubeshare() -> None:
    """A alone gets its limit; A and B get half each; with C all get their requests (Yeh et al., HPDC 2020)."""
    a = Container("A", 0.3, 0.6, [greedy(1)])
    b = Container("B", 0.4, 0.6, [greedy(1)], start=5000)
    c = Container("C", 0.3, 0.5, [greedy(1)], start=10_000)
    Simulation([a, b, c], span=15_000.0)
    got = [sum(each.seconds[at : at + 4]) / 40 for at in (1, 6, 11) for each in (a, b, c)]
    assert got == pytest.approx([60, 0, 0, 50, 50, 0, 30, 40, 30], abs=1)


@pytest.mark.parametrize("program", [sync(1), locked(1)])
def test_two_are_charged_for_what_they_ran(program: Program | list[Program]) -> None:
    """Two containers are charged for their execution, also in ticks in which one comes or goes.

    The other one launches burst after burst.
    """
    containers = Container("60", 0.6, 1, [program]), Container("40", 0.4, 1, [greedy(1)])
    simulation = Simulation(containers)
    for one in containers:
        assert 10 * simulation.uses(one).busy_s == pytest.approx(share(simulation, one), abs=0.2)
