"""Makes a difference small enough to read: whatever can be left out while the two still differ, is left out."""

import copy
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.placer.kube.differential.compare import Answers, Difference, ask
from tests.placer.kube.differential.draw import Object, Scenario
from tests.placer.kube.differential.ground import Ground
from tests.servers.apiserver import RefusedError

MOST_TRIES: Final = 150
"""The attempts to leave something out: a minute at most."""


async def shrunk(ground: Ground, found: Difference) -> Difference:
    """The same difference with as few objects and fields as `MOST_TRIES` attempts come to."""
    tries = MOST_TRIES

    async def still(scenario: Scenario) -> Answers | None:
        nonlocal tries
        tries -= 1
        try:
            await ground.lay_out(scenario)
            answers = await ask(ground, scenario.questions[0])
        except RefusedError:
            return None  # the API server does not take what is left
        return answers if answers.difference is not None else None

    is_new = True
    while is_new and tries > 0:
        is_new = False
        for smaller in _smaller(found.scenario):
            if tries <= 0:
                break
            answers = await still(smaller)
            if answers is not None:
                found, is_new = Difference(smaller, answers), True
                break
    return found


def report(found: Difference) -> str:
    """The difference for people: the cluster, the pod, both answers, and how to see it again."""
    scenario, answers = found.scenario, found.answers
    parts = {
        "nodes": scenario.nodes,
        "residents": scenario.residents,
        "objects": scenario.objects,
        "pod": scenario.questions[0],
    }
    text = "\n".join(
        yaml.safe_dump({name: _plain(part)}, sort_keys=False, default_flow_style=None, width=110)
        for name, part in parts.items()
        if part
    )
    return (
        f"seed {scenario.seed}: {answers.difference}\n\n{text}\n"
        f"kube-scheduler passes: {sorted(answers.passed)} {answers.kube_text}\n"
        f"the placer accepts:    {sorted(answers.accepted)}, chose {answers.chosen} {answers.text}\n"
        f"again: .venv/bin/python -m bench.contract --seed {scenario.seed}\n"
    )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with one thing less, the largest things first."""
    for part in ("residents", "nodes", "objects"):
        objects = scenario.part(part)
        for index in range(len(objects)):
            yield scenario.with_part(part, (*objects[:index], *objects[index + 1 :]))
    for part in ("questions", "residents", "nodes"):
        objects = scenario.part(part)
        for index, one in enumerate(objects):
            for smaller in _with_less(one):
                yield scenario.with_part(part, (*objects[:index], smaller, *objects[index + 1 :]))


_KEPT: Final = frozenset(
    {"metadata", "name", "namespace", "spec", "containers", "nodeName", "apiVersion", "kind", "pods"}
)
"""The fields without which nothing is left of an object."""


def _with_less(one: Object) -> Iterator[Object]:
    for path in sorted(_paths(one), key=len):
        copied: Any = copy.deepcopy(one)
        place = copied
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        yield copied


def _paths(value: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    steps: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        steps = list(value.items())
    elif isinstance(value, list):
        steps = list(enumerate(value))
    for step, below in steps:
        if step not in _KEPT:
            yield (*above, step)
        yield from _paths(below, (*above, step))
