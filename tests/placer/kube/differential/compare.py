"""Asks kube-scheduler and the placer about each pod of a scenario, and compares the two answers.

They agree if the placer accepts exactly the nodes that kube-scheduler's filters pass, if it places the pod on one of
these, and if it says "unschedulable" exactly when there is none.
"""

import asyncio
import copy
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from placer.scheduler.profile import understood
from plimsoll.ids import NodeName
from plimsoll.kube.models import decode_pod
from plimsoll.part.errors import InputError
from tests.placer.kube.differential.draw import Object, Scenario
from tests.placer.kube.differential.ground import (
    CANARY,
    POLICY,
    Ground,
    refusal_of,
    soon,
    twin_of,
)
from tests.servers.waiting import PATIENCE_S

SECOND_LOOK_S: Final = 0.5
"""The pause before two different answers are asked for again. Claims and namespaces have watches of their own, so one
of the two may not have known the newest."""
SELECTED: Final = "volume.kubernetes.io/selected-node"


@dataclass(frozen=True, slots=True)
class Answers:
    """Both answers about a pod.

    Attributes:
        passed: the nodes that pass kube-scheduler's filters.
        accepted: the nodes that the placer would accept.
        chosen: the placer's node, or None.
        text: the placer's refusal; empty if it placed the pod.
        kube_text: kube-scheduler's refusal; empty if there is a node.
    """

    passed: frozenset[str]
    accepted: frozenset[str]
    chosen: str | None
    text: str
    kube_text: str

    @property
    def difference(self) -> str | None:
        """The first difference, in words; None if the two agree."""
        if self.chosen is not None and self.chosen not in self.passed:
            return f"the placer chose {self.chosen}, which does not pass kube-scheduler's filters"
        if self.chosen is None and self.passed:
            return "the placer says unschedulable, and kube-scheduler has a node"
        if self.accepted != self.passed:
            return "the placer accepts other nodes than pass kube-scheduler's filters"
        return None


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference with the scenario that shows it: its only question is the pod."""

    scenario: Scenario
    answers: Answers


@dataclass(slots=True)
class Tally:
    """The results of several questions.

    Attributes:
        counts: questions by result: placed, unschedulable, different.
        differences: each difference.
    """

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)


async def compare(ground: Ground, scenario: Scenario, tally: Tally) -> None:
    """Ask both about each question of a scenario, in turn, and note the results."""
    await ground.lay_out(scenario)
    residents = list(scenario.residents)
    for question in scenario.questions:
        answers = await ask(ground, question)
        if answers.difference is not None:
            shown = replace(scenario, residents=tuple(residents), questions=(question,))
            tally.differences.append(Difference(shown, answers))
            tally.counts["different"] += 1
            return  # what follows would differ by this pod
        if answers.chosen is None:
            tally.counts["unschedulable"] += 1
        else:
            tally.counts["placed"] += 1
            placed = copy.deepcopy(question)
            placed["spec"]["nodeName"] = answers.chosen
            residents.append(placed)


async def ask(ground: Ground, question: Object) -> Answers:
    """Both answers about a pod, on the cluster as it is; the pod stays if the placer placed it and both agree."""
    answers = await _ask(ground, question)
    if answers.difference is None:
        return answers
    await ground.delete(_ours(question))
    await asyncio.sleep(SECOND_LOOK_S)
    return await _ask(ground, question)


async def _ask(ground: Ground, question: Object) -> Answers:
    passed, kube_text = await _passed(ground, question)
    accepted = await _accepted(ground, question)
    pod = _ours(question)
    await ground.create(pod)
    chosen, text = await _placed(ground, pod)
    if chosen is None or _waits_for_consumer(pod):
        await ground.delete(pod)
    return Answers(passed, accepted, chosen, text, kube_text)


def _ours(question: Object) -> Object:
    return {**question, "spec": {**question["spec"], "schedulerName": "plimsoll"}}


async def _passed(ground: Ground, question: Object) -> tuple[frozenset[str], str]:
    """The nodes that kube-scheduler's filters pass, and its text if there is none."""
    twin = twin_of(question)
    uid = (await ground.create(twin))["metadata"]["uid"]
    await soon(lambda: uid in ground.asked.passed or refusal_of(ground.seen(twin)) is not None)
    passed = ground.asked.passed.get(uid)
    text = refusal_of(ground.seen(twin)) or ""
    await ground.delete(twin)
    return (frozenset(), text) if passed is None else (passed, "")


async def _accepted(ground: Ground, question: Object) -> frozenset[str]:
    """The nodes that the placer would accept, without placing anything."""
    stored = await ground.defaulted(_ours(question))
    try:
        wanted = understood(decode_pod(json.dumps(stored)), POLICY)
    except InputError:
        return frozenset()
    choice, nodes = ground.parts.core.scheduling, ground.parts.core.profile.cache.nodes
    return frozenset(
        node for node in nodes if node != CANARY and not choice.obstacles(wanted, NodeName(node))
    )


async def _placed(ground: Ground, pod: Object) -> tuple[str | None, str]:
    """The placer's node for a pod that was created, or its refusal."""
    if _waits_for_consumer(pod):
        return await _selected(ground, pod)
    await soon(lambda: _node_of(ground, pod) or refusal_of(ground.seen(pod)) is not None)
    chosen = _node_of(ground, pod)
    return chosen, "" if chosen else refusal_of(ground.seen(pod)) or ""


def _node_of(ground: Ground, pod: Object) -> str | None:
    seen = ground.seen(pod)
    return seen.spec.nodeName or None if seen is not None else None


def _waits_for_consumer(pod: Object) -> bool:
    return any(one["name"].endswith("-later") for one in pod["spec"].get("volumes", ()))


async def _selected(ground: Ground, pod: Object) -> tuple[str | None, str]:
    """The node that the placer wrote into the pod's claim. Nobody provides volumes here, so the pod is not bound."""
    [claim] = [one["name"] for one in pod["spec"]["volumes"] if one["name"].endswith("-later")]
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/persistentvolumeclaims/{claim}"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if (text := refusal_of(ground.seen(pod))) is not None:
                return None, text
            meta = (await ground.api.get(path))["metadata"]
            if node := meta.get("annotations", {}).get(SELECTED):
                # The next attempt, if there is one, finds the claim as it was.
                await ground.api.must("PATCH", path, {"metadata": {"annotations": {SELECTED: None}}})
                return node, ""
            await asyncio.sleep(SECOND_LOOK_S / 10)
