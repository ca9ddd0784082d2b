"""The guard around a policy of another package: its faults refuse the pods that name it, and stop nothing else.

What always holds: no method raises anything but `PolicyError`; `state` and the index raise nothing. Once the index
has missed a change it is dropped, and every later pod that names the policy is refused until the placer starts again.
"""

import signal
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from math import inf, isfinite, isnan
from typing import TypeVar

from placer.core.gpu_index import GpuIndex
from placer.core.index import Index, Surroundings
from placer.core.ledger import Ledger
from placer.core.policies.policy import Judgement, Policy, PolicyError, one_line
from placer.core.policy_context import AssignedGpu, Context, Request, Rooms
from placer.core.room import Room
from plimsoll.demand import ContainerDemand
from plimsoll.ids import GpuUuid, NodeName

T = TypeVar("T")


def is_its_own(error: BaseException) -> bool:
    """Whether an error is the package's own: everything but Ctrl-C, where Python raises `KeyboardInterrupt` for it.

    The placer has a handler of its own for Ctrl-C. So is asyncio's `CancelledError` the package's own, as its methods
    await nothing. Passed on, either would end the placer or a task of it.
    """
    is_raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return not (isinstance(error, KeyboardInterrupt) and is_raised)


class Installed(Policy):
    """A policy of another package, with its answers checked."""

    __slots__ = ("_inner", "failure", "name")

    def __init__(self, inner: Policy) -> None:
        """Guard a policy."""
        self.name = inner.name
        self.failure: PolicyError | None = None
        self._inner = inner

    def rank(self, room: Room) -> float:
        """See `Policy`; a finite number."""
        return self._call(lambda: _finite(self._inner.rank(room), "rank"))

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:
        """See `Policy`; finite numbers."""
        return self._call(lambda: _parts(self._inner.sub_scores(room, demand)))

    def score(self, room: Room, demand: ContainerDemand) -> float:
        """See `Policy`; a finite number."""
        return self._call(lambda: _finite(self._inner.score(room, demand), "score"))

    def objection(self, context: Context, room: Room, demand: ContainerDemand) -> str | None:
        """See `Policy`."""

        def ask() -> str | None:
            why = self._inner.objection(context, room, demand)
            return None if why is None else one_line(str(why)) or f"policy {self.name} objects"

        return self._call(ask)

    def state(self, request: Request, ledger: Ledger) -> Hashable:
        """See `Policy`; it differs once the policy has failed for good. A fault here is one for good."""

        def ask() -> Hashable:
            state = self._inner.state(request, ledger)
            hash(state)
            return state

        try:
            return self._call(ask)
        except PolicyError as error:
            return str(self.fail(error))

    def arrange(self, context: Context, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:
        """See `Policy`; `placer.core.assignment` checks the answer."""
        return self._call(lambda: list(self._inner.arrange(context, demand, fitting)))

    def judge(self, context: Context, assigned: Sequence[AssignedGpu]) -> Judgement:
        """See `Policy`; finite numbers."""

        def ask() -> Judgement:
            made = self._inner.judge(context, assigned)
            parts = {str(where): _parts(given) for where, given in made.sub_scores.items()}
            return Judgement(_finite(made.score, "score"), parts, one_line(str(made.note)))

        return self._call(ask)

    def index(self, around: Surroundings) -> Index:
        """See `Policy`."""
        return _GuardedIndex(self, around)

    def inner_index(self, around: Surroundings) -> Index:
        """The index of the policy itself; its ranks are checked."""
        plain = type(self._inner).index is Policy.index
        return GpuIndex(self.rank, around) if plain else self._inner.index(around)

    def fail(self, error: BaseException) -> PolicyError:
        """Refuse all later pods for a fault; the first one counts."""
        self.failure = self.failure or self._named(error)
        return self.failure

    def _call(self, ask: Callable[[], T]) -> T:
        if self.failure is not None:
            raise self.failure
        try:
            return ask()
        except BaseException as error:
            if not is_its_own(error):
                raise
            raise self._named(error) from error

    def _named(self, error: BaseException) -> PolicyError:
        if isinstance(error, PolicyError):
            return error
        return PolicyError(self.name, f"{type(error).__name__}: {error}".removesuffix(": "))


class _GuardedIndex:
    """The index of an installed policy: a `placer.core.index.Index`. After a fault, nodes come in any order."""

    def __init__(self, policy: Installed, around: Surroundings) -> None:
        self._policy, self._around = policy, around
        self._inner: Index | None = None
        try:
            self._inner = policy.inner_index(around)
        except BaseException as error:
            if not is_its_own(error):
                raise
            policy.fail(error)

    def move(self, node: NodeName, before: Rooms, after: Rooms, changed: Collection[GpuUuid]) -> None:
        """Pass the change on."""
        if self._inner is None:
            return
        try:
            self._inner.move(node, before, after, changed)
        except BaseException as error:
            if not is_its_own(error):
                raise
            self._drop(error)

    def best_first(self, request: Request) -> Iterator[tuple[float, NodeName]]:
        """The nodes as the inner index gives them; after a fault, all nodes, so that each can be refused for it."""
        try:
            if self._inner is not None:
                for bound, node in self._inner.best_first(request):
                    yield _bound(bound), self._around.nodes[node].node.node
        except GeneratorExit:  # the search has ended
            raise
        except BaseException as error:
            if not is_its_own(error):
                raise
            self._drop(error)
        if self._inner is None:
            yield from ((inf, node) for node in self._around.nodes)

    def _drop(self, error: BaseException) -> None:
        self._inner = None
        self._policy.fail(error)


def _finite(number: float, what: str) -> float:
    if not isfinite(number):
        raise ValueError(f"the {what} is {number}")
    return float(number)


def _bound(number: float) -> float:
    if isnan(number):
        raise ValueError(f"the bound of a node is {number}")
    return number


def _parts(given: Mapping[str, float]) -> dict[str, float]:
    return {str(name): _finite(part, f"sub-score {name}") for name, part in given.items()}
