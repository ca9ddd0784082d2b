"""Policies of other packages that are faulty: their pods are refused by name, and nothing else is hurt."""

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from math import nan

import pytest

from placer.core import policies
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies import POLICIES, Policy, policy_named
from placer.core.policies.installed import Installed
from placer.core.refusal import Refusal
from placer.core.room import Room
from placer.decide import Decider, PolicyTimes
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from plimsoll.demand import ContainerDemand
from plimsoll.ids import NodeName, PodUid
from plimsoll.part.errors import InputError
from tests.logs import capture_logs
from tests.placer.core.worlds import declared, gpu, init, request, state

NODE = NodeName("n")


def fault(*_: object) -> None:
    """Raise an error of two lines."""
    raise RuntimeError("it\nbroke")


def leave(*_: object) -> None:
    """End the program."""
    raise SystemExit(3)


def cancel(*_: object) -> None:
    """Raise the error that ends a task of asyncio, in silence."""
    raise asyncio.CancelledError


def interrupt(*_: object) -> None:
    """Raise the error by which Python ends a program at Ctrl-C."""
    raise KeyboardInterrupt


@pytest.fixture
def own_handler() -> Iterator[None]:
    """Ctrl-C is handled as in the placer, where it raises nothing."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, before)


@dataclass(frozen=True, slots=True)
class Plain(Policy):
    """A policy that works."""

    name: str = "odd"

    def rank(self, room: Room) -> float:  # noqa: ARG002 - one interface
        """Equal for all."""
        return 0.5

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:  # noqa: ARG002 - one interface
        """Nothing to tell."""
        return {}

    def score(self, room: Room, demand: ContainerDemand) -> float:  # noqa: ARG002 - one interface
        """Equal for all."""
        return 0.5


def with_method(method: str, body: object) -> Policy:
    """The working policy with another method."""
    made = type("Odd", (Plain,), {method: body, "__slots__": ()})()
    assert isinstance(made, Policy)
    return made


def deciding() -> Decider:
    """A decider over one node with two idle GPUs."""
    made = Decider(ReportView(), Ledger(), Metrics())
    made.reports.apply(state("n", gpu("A"), gpu("B")))
    return made


@pytest.mark.parametrize(
    "method", ["rank", "score", "objection", "arrange", "judge", "index", "state", "sub_scores"]
)
@pytest.mark.parametrize("body", [fault, leave, cancel, interrupt])
@pytest.mark.usefixtures("own_handler")
def test_a_policy_that_raises_refuses_its_pods_by_name(method: str, body: Callable[..., None]) -> None:
    """The pod's reason names policy, error and remedy; pods of other policies go on, also after later changes."""
    decider, odd = deciding(), Installed(with_method(method, body))
    odd.state(request("p", declared("main", 1)), decider.ledger)  # as each front end asks first
    refused = decider.decide(request("p", declared("main", 1)), odd)
    assert isinstance(refused, Refusal)
    (reason,) = refused.reasons[NODE]
    problem = {
        fault: "RuntimeError: it broke",
        leave: "SystemExit: 3",
        cancel: "CancelledError",
        interrupt: "KeyboardInterrupt",
    }[body]
    assert reason.startswith(f"policy odd failed: {problem}; mend its package")
    assert isinstance(decider.decide(request("q", declared("main", 1)), POLICIES["headroom"]), Plan)
    decider.reports.apply(state("n", gpu("A"), gpu("B"), seq=2))
    assert isinstance(decider.decide(request("r", declared("main", 1)), POLICIES["headroom"]), Plan)
    assert isinstance(decider.decide(request("p", declared("main", 1)), odd), Refusal)


@pytest.mark.parametrize("method", ["rank", "objection", "index"])
def test_ctrl_c_ends_a_program_amid_a_policy(method: str) -> None:
    """Where Python raises for Ctrl-C, as in the simulator, the program ends although a policy runs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    try:
        with pytest.raises(KeyboardInterrupt):
            deciding().decide(request("p", declared("main", 1)), Installed(with_method(method, interrupt)))
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("node(s) had GPUs that I dislike", "node(s) had GPUs that I dislike"),
        ("red\x1b[31m\n\ttext\x00", "red\ufffd[31m text\ufffd"),
        ("long " * 1_000_000, ("long " * 40)),
        ("\n", "policy odd objects"),
    ],
)
def test_the_text_of_an_objection_is_a_short_line_without_control_characters(text: str, shown: str) -> None:
    """People read the text of another package in `kubectl describe`, whatever it has."""
    refused = deciding().decide(
        request("p", declared("main", 1)), Installed(with_method("objection", lambda *_: text))
    )
    assert isinstance(refused, Refusal)
    assert refused.reasons[NODE] == (shown,)


@pytest.mark.parametrize("method", ["rank", "score"])
def test_a_score_that_is_no_number_refuses_the_pod(method: str) -> None:
    """NaN orders nothing, so it is a fault of the policy."""
    refused = deciding().decide(
        request("p", declared("main", 1)), Installed(with_method(method, lambda *_: nan))
    )
    assert isinstance(refused, Refusal)
    assert refused.reasons[NODE][0].startswith(f"policy odd failed: ValueError: the {method} is nan")


def test_an_index_that_misses_a_change_fails_for_good() -> None:
    """A fault of `move` at a booking stops nobody; then the policy's state differs, and its pods are refused."""
    broken: list[bool] = []
    decider, odd = deciding(), Installed(with_method("rank", lambda *_: fault() if broken else 0.5))
    asked = request("p", declared("main", 1))
    before = odd.state(asked, decider.ledger)
    assert isinstance(decider.decide(asked, odd), Plan)
    broken.append(True)
    assert isinstance(decider.decide(request("q", declared("main", 1)), POLICIES["headroom"]), Plan)
    decider.ledger.forget(PodUid("p"))
    broken.clear()
    assert isinstance(decider.decide(asked, odd), Refusal)
    assert odd.state(asked, decider.ledger) != before


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda _: [], "arrange gave 0 GPUs, 0 different, where"),
        (lambda fitting: fitting[:1] * 2, "arrange gave 2 GPUs, 1 different, where"),
        (lambda _: ["A", "B"], "arrange gave a GPU that does not fit"),
        (
            lambda fitting: [replace(one, free_bytes=0) for one in fitting],
            "arrange gave a GPU that does not fit",
        ),
    ],
)
@pytest.mark.parametrize(
    "asked", [declared("main", 1), declared("main", 1, gpus=2), init(declared("main", 1), 0)]
)
def test_a_wrong_choice_of_gpus_books_nothing(
    answer: Callable[[Sequence[Room]], Sequence[object]], problem: str, asked: ContainerDemand
) -> None:
    """GPUs that are too few, the same twice, or not among those that fit are a fault; no container goes without."""
    odd = Installed(with_method("arrange", lambda _, __, ___, fitting: answer(fitting)))
    decider = deciding()
    refused = decider.decide(request("p", asked), odd)
    assert isinstance(refused, Refusal)
    assert refused.reasons[NODE][0].startswith(f"policy odd failed: {problem}")
    assert not list(decider.ledger.bookings())


@pytest.mark.parametrize("ending", [leave, interrupt])
@pytest.mark.usefixtures("own_handler")
def test_a_package_that_ends_the_program_is_refused(
    monkeypatch: pytest.MonkeyPatch, ending: Callable[[], None]
) -> None:
    """SystemExit or KeyboardInterrupt at import is an error of the pods that name the policy. It is imported once."""
    imports: list[str] = []

    def load(entry: EntryPoint) -> None:
        imports.append(entry.name)
        ending()

    monkeypatch.setitem(
        policies.listed_policies(), "odd", EntryPoint("odd", "antigravity_odd:P", policies.ENTRY_POINTS)
    )
    monkeypatch.setattr(policies, "_LOADED", {})
    monkeypatch.setattr(EntryPoint, "load", load)
    policies.load_policies()
    for _ in range(2):
        with pytest.raises(InputError, match="cannot be loaded"):
            policy_named("odd", "test")
    assert imports.count("odd") == 1
    policies.check_name("odd", "test")  # the webhook loads nothing


def test_a_slow_policy_is_named_once_a_minute() -> None:
    """A decision of 50 ms by another package's policy is logged with its name; those of ours are measured alone."""
    times = iter([0.0, 0.06, 1.0, 1.06, 70.0, 70.06, 71.0, 71.01, 72.0, 72.5])
    seconds = Metrics().decisions.policy_seconds
    measuring, odd = PolicyTimes(seconds, lambda: next(times)), Installed(with_method("rank", lambda *_: 0.5))
    with capture_logs() as logged:
        for policy in (odd, odd, odd, odd, POLICIES["headroom"]):
            with measuring.measured(policy):
                pass
    assert [(one["policy"], one["took_ms"]) for one in logged] == [("odd", 60), ("odd", 60)]
    counts = {
        sample.labels["policy"]: sample.value
        for metric in seconds.collect()
        for sample in metric.samples
        if sample.name.endswith("_count")
    }
    assert counts == {"odd": 4, "headroom": 1}
