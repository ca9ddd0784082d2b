"""The promises in the placer's answer on a bound pod, and the check that the pod asked for them. Pure.

The answer is `gpus.plimsoll.dev/<container>`, which names the GPUs, and `plimsoll.dev/decision`, which holds bytes,
shares and whole GPUs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.chaos.asks import Ask, UnreadableError, annotations_of, asks_of
from tests.chaos.fleet import Card
from tests.chaos.promises import Promise

Object = dict[str, Any]

ANSWER: Final = "gpus.plimsoll.dev/"
DECISION: Final = "plimsoll.dev/decision"
ENDED: Final = frozenset({"Succeeded", "Failed"})


def answers_of(pod: Object) -> dict[str, str]:
    """The annotations of a pod that are the placer's."""
    return {
        name: value
        for name, value in annotations_of(pod).items()
        if name.startswith(ANSWER) or name == DECISION
    }


def promises_of(pod: Object, cards: Mapping[str, Card]) -> tuple[tuple[Promise, ...], list[str]]:
    """The promises to a pod that was just bound, and the mistakes in the placer's answer."""
    given = {
        name.removeprefix(ANSWER): tuple(part.strip() for part in value.split(",") if part.strip())
        for name, value in annotations_of(pod).items()
        if name.startswith(ANSWER)
    }
    try:
        asks = {ask.container: ask for ask in asks_of(pod)}
        grants = _grants(pod)
    except UnreadableError as error:
        return (), [f"a pod is bound and cannot be read: {error}"]
    problems = [
        f"container {name} asks for no GPU and was given {given[name]}" for name in given.keys() - asks
    ]
    promises: list[Promise] = []
    for name, ask in asks.items():
        gpus = given.get(name, ())
        problems += _misplaced(pod, ask, gpus, cards)
        asked = (
            Promise(
                pod=pod["metadata"]["uid"],
                container=name,
                gpu=gpu,
                memory_bytes=ask.bytes_of(cards[gpu].usable_bytes),
                share_pct=ask.share_pct,
                whole=ask.whole,
                place=ask.place,
                stays=ask.stays,
            )
            for gpu in dict.fromkeys(gpus)
            if gpu in cards
        )
        decided = asked if grants is None else [_decided(one, grants) for one in asked]
        if grants is not None:
            problems += _other_than_asked(ask, gpus, grants.get(name, {}), cards)
        promises += decided
    return tuple(promises), problems


def resized(promises: Sequence[Promise], pod: Object) -> tuple[Promise, ...]:
    """The promises of a bound pod after a resize; a whole GPU is never resized.

    Raises:
        UnreadableError: an annotation that only the placer writes is damaged.
    """
    grants = _grants(pod)
    return tuple(promises if grants is None else (_decided(promise, grants) for promise in promises))


def _grants(pod: Object) -> dict[str, dict[str, Object]] | None:
    """The grants in a pod's decision by container and GPU; None where the decision has none."""
    containers = _json(annotations_of(pod), DECISION).get("containers")
    if containers is None:
        return None
    try:
        return {name: {grant["gpu"]: grant for grant in grants} for name, grants in containers.items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise UnreadableError(f"the decision makes no sense: {containers}") from error


def _decided(promise: Promise, grants: Mapping[str, Mapping[str, Object]]) -> Promise:
    grant = grants.get(promise.container, {}).get(promise.gpu)
    if grant is None:
        return promise
    return replace(
        promise,
        memory_bytes=grant.get("memory_bytes") or 0,
        share_pct=grant.get("share_pct", 0),
        whole=grant.get("whole", False),
    )


def _other_than_asked(
    ask: Ask, gpus: Sequence[str], grants: Mapping[str, Object], cards: Mapping[str, Card]
) -> list[str]:
    """The differences between the decision on a pod that was just bound and the demand in its spec."""
    if set(gpus) != set(grants):
        return [f"container {ask.container} was given {list(gpus)}, and its decision has {sorted(grants)}"]
    # A tenant may have changed `best-effort` between decision and bind. So without bytes and share in the spec, the
    # decision may give the GPU whole or shared.
    plain = not ask.memory_bytes and not ask.memory_pct and ask.share_pct in (0, 100)
    problems = []
    for gpu, grant in grants.items():
        terms = (0, False) if plain else (grant.get("share_pct", 0), grant.get("whole", False))
        asked = (0, False) if plain else (ask.share_pct, ask.whole)
        promised = (grant.get("memory_bytes") or 0, *terms)
        wanted = (ask.bytes_of(cards[gpu].usable_bytes) if gpu in cards else 0, *asked)
        if promised != wanted:
            problems.append(f"container {ask.container} asks for {wanted} and was promised {promised}")
    return problems


def _json(annotations: Mapping[str, str], name: str) -> Object:
    try:
        found = json.loads(annotations.get(name, "{}"))
    except ValueError as error:
        raise UnreadableError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableError(f"{name} is no JSON object")
    return found


def _misplaced(pod: Object, ask: Ask, gpus: Sequence[str], cards: Mapping[str, Card]) -> list[str]:
    node = pod["spec"]["nodeName"]
    strangers = [gpu for gpu in gpus if gpu not in cards or cards[gpu].node != node]
    problems = [
        f"container {ask.container} on {node} was given {gpu}, which is not on that node" for gpu in strangers
    ]
    if len(gpus) != ask.gpus or len(set(gpus)) != len(gpus):
        problems.append(
            f"container {ask.container} asks for {ask.gpus} distinct GPUs and was given {list(gpus)}"
        )
    return problems
