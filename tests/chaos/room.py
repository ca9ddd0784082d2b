"""Whether a waiting pod would fit, by an arithmetic of its own. In doubt the pod does not fit. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from tests.chaos.asks import BEST_EFFORT, DOMAIN, Ask, UnreadableError, annotations_of, asks_of, requested
from tests.chaos.fleet import FLEET, GIB, Card, Machine
from tests.chaos.pods import KIND, MALFORMED, POLICIES, POLICY
from tests.chaos.promises import Sums

Object = dict[str, Any]

LIMIT: Final = "plimsoll.dev/gpu-share-limit"
MODEL: Final = "plimsoll.dev/gpu-model"
SIMPLE: Final = frozenset({BEST_EFFORT, LIMIT, MODEL, POLICY})
"""The annotations that are understood here. A pod with any other is not said to fit."""
BEST_EFFORT_TAKES: Final = 2 * GIB
"""More than the placer may expect a best-effort container to need here: its tasks never used half a GiB."""
SHARERS: Final = 30


def node_for(pod: Object, sums: Sums, bound: Iterable[Object], closed: Collection[str] = ()) -> str | None:
    """A node on which a waiting pod certainly has room, all nodes being fit; None if there may be none.

    Args:
        pod: waits.
        sums: the promises on all GPUs.
        bound: the pods that have a node and have not ended.
        closed: the GPUs that no pod without labels may join.
    """
    try:
        asks = asks_of(pod)
    except UnreadableError:
        return None
    if not _is_simple(pod, asks):
        return None
    annotations = annotations_of(pod)
    models = [name.strip() for name in annotations.get(MODEL, "").split(",") if name.strip()]
    taken: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in bound:
        taken[one["spec"]["nodeName"]].update(requested(one))
    for machine in _selected(pod):
        wanted = taken[machine.name] + requested(pod)
        if any(wanted[name] > most for name, most in machine.advertised.items()):
            continue  # a lowered share or line frees the GPU, and the node still counts what the spec says
        open_cards = [card for card in machine.cards if card.uuid not in closed]
        cards = [card for card in open_cards if not models or card.model in models]
        # Each GPU must take the hardest of all containers: then no order of placing them fails.
        free = [card for card in cards if all(_takes(card, ask, sums) for ask in asks)]
        if len(free) >= sum(ask.gpus for ask in asks):
            return machine.name
    return None


def _is_simple(pod: Object, asks: Iterable[Ask]) -> bool:
    if (pod["metadata"].get("labels") or {}).get(KIND) == MALFORMED:
        return False
    asks = list(asks)
    annotations = {name: text for name, text in annotations_of(pod).items() if DOMAIN in name}
    if annotations.get(POLICY) == POLICIES[-1]:
        return False
    if not asks:
        return not annotations  # no annotation of ours makes sense on such a pod, and the placer refuses it
    if not annotations.keys() <= SIMPLE or annotations.get(BEST_EFFORT, "true") not in ("true", "false"):
        return False
    limit = annotations.get(LIMIT, "100")
    if not limit.isdecimal() or any(
        int(limit) < 100 and (ask.whole or ask.share_pct > int(limit)) for ask in asks
    ):
        return False
    declares = any(ask.memory_bytes for ask in asks)
    return (
        not (declares and annotations.get(BEST_EFFORT) == "true")
        and annotations.get(MODEL, "any").strip() != ""
    )


def _selected(pod: Object) -> Iterable[Machine]:
    selector: Mapping[str, str] = pod["spec"].get("nodeSelector") or {}
    return (
        machine
        for machine in FLEET
        if all(machine.labels.get(name) == value for name, value in selector.items())
    )


def _takes(card: Card, ask: Ask, sums: Sums) -> bool:
    promises = sums.on(card.uuid)
    if ask.whole:
        return not promises
    if any(promise.whole for promise in promises) or len(promises) >= SHARERS:
        return False
    best_effort = BEST_EFFORT_TAKES * sum(promise.best_effort for promise in promises)
    taken = sums.bytes_on(card.uuid) + best_effort
    # A container without a line sees none of what the node promises beyond the card.
    most = card.most_bytes if ask.memory_bytes else card.usable_bytes
    need = ask.memory_bytes or BEST_EFFORT_TAKES
    fits = taken + need <= most and need <= card.usable_bytes
    return fits and sums.share_on(card.uuid) + ask.share_pct <= 100
