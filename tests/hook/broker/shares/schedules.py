"""Random schedules: who joins, what runs there, and what befalls it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from hook.broker.core.shares.settings import MS, US, ShareSettings
from tests.hook.broker.shares.library import Process
from tests.hook.broker.shares.programs import Program, greedy, looping, part_time
from tests.hook.broker.shares.world import Container, World

GPUS: Final = ("GPU-a", "GPU-b")
KERNELS_NS: Final = (500 * US, 1 * MS, 3 * MS, 20 * MS, 60 * MS)
SPAN_S: Final = 0.7


@dataclass(eq=False, slots=True)
class Tenant:
    """A container and what it is.

    Attributes:
        is_greedy: it has work throughout, and nothing befalls it.
        kernel_ns: its longest.
    """

    container: Container
    is_greedy: bool
    kernel_ns: int


class Schedule:
    """One random history of a node with two GPUs."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable
        fixed_ms = self.random.choice([10.0, 30.0, 60.0])
        self.settings = self.random.choice(
            [
                ShareSettings(),
                ShareSettings(quota_ms=fixed_ms, quota_least_ms=fixed_ms, quota_most_ms=fixed_ms),
                ShareSettings(grace_ms=100.0, relax_s=0.2, unmet_s=0.5),
            ]
        )
        self.world = World(self.settings, seed)
        self.tenants: list[Tenant] = []
        self.befell = False
        self._left = dict.fromkeys(GPUS, 100)
        for _ in range(self.random.randint(2, 6)):
            self._enter()

    def run(self) -> None:
        """Everything happens."""
        for _ in range(self.random.randint(0, 6)):
            self.world.run(self.random.uniform(0, SPAN_S / 6))
            self.random.choice(self._happenings())()
        self.world.run(SPAN_S / 3)

    def settle(self) -> None:
        """Only time passes."""
        self.world.run(SPAN_S)

    def _enter(self) -> None:
        gpus = self.random.choice([GPUS[:1], GPUS[:1], GPUS[1:], GPUS])
        room = min(self._left[gpu] for gpu in gpus)
        request = self.random.choice([0, room, self.random.randint(0, room), self.random.randint(0, room)])
        limit = self.random.choice([100, 100, self.random.randint(max(request, 5), 100)])
        for gpu in gpus:
            self._left[gpu] -= request
        container = self.world.join(f"c{len(self.tenants)}", request, limit, gpus=gpus)
        kernel_ns = self.random.choice(KERNELS_NS)
        is_greedy = self.random.random() < 0.6
        self.tenants.append(Tenant(container, is_greedy, kernel_ns))
        for _ in range(self.random.choice([1, 1, 2])):
            self.world.start(container, self._program(kernel_ns, is_greedy=is_greedy))

    def _program(self, kernel_ns: int, *, is_greedy: bool) -> Program:
        if is_greedy:
            return greedy(kernel_ns)
        if self.random.random() < 0.5:
            return looping(kernel_ns, self.random.choice([10 * US, 300 * US, 5 * MS]))
        on_ns, off_ns = self.random.choice([10, 50, 200]) * MS, self.random.choice([5, 50, 200]) * MS
        return part_time(kernel_ns, on_ns, off_ns)

    def _happenings(self) -> list[Callable[[], None]]:
        return [self._nothing, self._kill, self._leave, self._stop, self._resume, self._change, self._enter]

    def _nothing(self) -> None:
        pass

    def _kill(self) -> None:
        if process := self._process():
            self.world.kill(process)

    def _stop(self) -> None:
        if process := self._process():
            process.stop()
            self.befell = True

    def _resume(self) -> None:
        for tenant in self.tenants:
            for process in tenant.container.processes:
                process.resume()

    def _leave(self) -> None:
        tenant = self.random.choice(self.tenants)
        if tenant.container.key in self.world.containers:
            self.world.leave(tenant.container)
            tenant.is_greedy = False
            for gpu in tenant.container.terms.gpus:
                self._left[gpu] += tenant.container.terms.request_pct

    def _change(self) -> None:
        """Its request falls, and its limit with it or not."""
        tenant = self.random.choice(self.tenants)
        container = tenant.container
        if container.key in self.world.containers and container.terms.limit_pct == 100:
            request = self.random.randint(0, container.terms.request_pct)
            for gpu in container.terms.gpus:
                self._left[gpu] += container.terms.request_pct - request
            self.world.join(container.key.pod, request, 100, gpus=container.terms.gpus)

    def _process(self) -> Process | None:
        """Somebody's, who is not greedy from now on."""
        tenant = self.random.choice(self.tenants)
        processes = tenant.container.processes
        if not processes or tenant.container.key not in self.world.containers:
            return None
        tenant.is_greedy = False
        return self.random.choice(processes)
