"""A decision by rules about other pods costs no more with many pods than with few."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.core.refusal import Refusal
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from placer.scheduler import choice
from placer.scheduler.choice import NodeChoice
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import Profile, understood
from placer.scheduler.topology import index
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node
from tests.placer.kube.objects import pod_of
from tests.placer.scheduler.topology.rules import REQUIRED, apart, beside, by_app, spread

SPEC: dict[str, Any] = {
    **spread("x", "zone"),
    "affinity": {
        **beside("x", "zone")["affinity"],
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "host", "labelSelector": by_app("none")}]},
    },
}


def cluster(nodes: int, pods_per_node: int) -> NodeChoice:
    """A cluster with this many pods that the rules of `SPEC` mean, and as many others."""
    made = NodeChoice(Decider(ReportView(), Ledger(), Metrics()), Profile(Ledger()))
    for number in range(nodes):
        labels = {"zone": f"z{number % 2}", "host": f"n{number}"}
        document = {
            "metadata": {"name": f"n{number:03}", "labels": labels},
            "status": {"allocatable": {"pods": "500"}},
        }
        made.cache.put_node(msgspec.convert(document, Node))
        for place in range(pods_per_node):
            labels = {"app": "x" if place % 2 else "y", "place": str(place)}
            pod = pod_of(f"p{number}-{place}", {}, labels, nodeName=f"n{number:03}", **apart("nothing"))
            made.cache.confirm(pod)
    return made


def calls(do: Callable[[], object]) -> int:
    """The number of Python calls that something makes."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def wanted(name: str) -> PodInfo:
    """A pod with the rules of `SPEC`."""
    return understood(pod_of(name, {}, {"app": "x"}, **SPEC), HEADROOM)


def place(made: NodeChoice, name: str) -> None:
    """Decide, and count the pod."""
    asked = wanted(name)
    while not made.profile.pod_rules.prepare(asked.domains, 1000):
        pass
    decided = made.decide(asked)
    assert isinstance(decided, Plan)
    made.decider.ledger.forget(decided.booking.pod)
    made.cache._ledger.book(decided.booking)
    made.cache.assume(decided.booking, asked.needs, asked.pod)


def test_decision_makes_no_more_calls_with_many_pods_than_with_few() -> None:
    """Once the rules are known, a decision and the counting of its pod cost the same with fifty times the pods."""
    found = []
    for pods in (2, 100):
        made = cluster(10, pods)
        place(made, "first")
        found.append(calls(lambda made=made: place(made, "second")))  # type: ignore[misc]
    few, many = found
    assert many < few + 20  # calls of destructors may come at any time


def test_known_rules_are_not_read_again() -> None:
    """New pods with known rules read no pods and nodes. Each pod that comes or goes is counted in one step."""
    made = cluster(10, 20)
    place(made, "first")
    before = made.profile.pod_rules._domains.work
    for number in range(5):
        made.decide(wanted("later"))
        made.decider.ledger.forget(PodUid("later"))
        made.cache.confirm(pod_of(f"q{number}", {}, {"app": "x"}, nodeName="n000"))
        made.cache.forget(PodUid(f"q{number}"))
    assert made.profile.pod_rules._domains.work - before == 10


async def test_rules_that_are_new_are_read_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision reads a bounded part for new rules. The explanation reads the rest, and then a node is found."""
    monkeypatch.setattr(choice, "READ_AT_ONCE", 20)
    made = cluster(50, 4)
    asked = wanted("p")
    refused = made.decide(asked)
    assert isinstance(refused, Refusal)
    assert not refused.is_final
    assert made.profile.pod_rules._domains.work < 500
    assert await made.explain(asked) is None
    assert isinstance(made.decide(asked), Plan)


def test_counts_of_rules_used_longest_ago_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index keeps a bounded number of thousands of distinct rules, and their answers stay right."""
    monkeypatch.setattr(index, "RULES_KEPT", 8)
    made = cluster(4, 2)
    for number in range(100):
        asked = understood(pod_of(f"p{number}", {}, {"app": f"a{number}"}, **apart(f"a{number}")), HEADROOM)
        assert made.profile.pod_rules.obstacle(asked.pod, asked.domains, NodeName("n000")) is None
    domains = made.profile.pod_rules._domains
    assert len(domains._in_use) == 8
    assert len(domains._headcounts) == 8
    assert len(domains._partitions) == 1
    assert sum(map(len, domains._anchored.values())) == 8
