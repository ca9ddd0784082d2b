"""The figures of a whole run under dotted keys, from those of its parts."""

from collections.abc import Mapping, Sequence

from bench.placer.ground import Json
from bench.placer.sides import KUBE_SCHEDULER, PLACER


def size_keys(label: str, sides: Mapping[str, Json]) -> Json:
    """The keys of one size: each figure of both sides, the ratio, and the placer's own under short keys.

    Args:
        label: `n1000` for 1000 nodes.
        sides: the figures of each side, by its name.
    """
    keys: Json = {
        f"{label}.{side}.{name}": value for side, found in sides.items() for name, value in found.items()
    }
    ours, theirs = sides[PLACER], sides[KUBE_SCHEDULER]
    keys[f"{label}.ratio"] = round(ours["pods_per_s"] / theirs["pods_per_s"], 3)
    keys[f"{label}.settled_ratio"] = round(ours["settled_per_s"] / theirs["settled_per_s"], 3)
    for name in ("pending_bound_ms_p50", "pending_bound_ms_p99", "cpu_ms_per_pod"):
        keys[f"{label}.{name}"] = ours[name]
    return keys


def replay_keys(replays: Sequence[tuple[str, Json]]) -> Json:
    """The keys of the replays in process.

    Args:
        replays: by rising size, the label of each (`1000`, `20000`) and its figures.
    """
    keys: Json = {
        f"{name}_{label}": found[name]
        for label, found in replays
        for name in ("decision_ms_p50", "looked_at_mean", "looked_at_max", "unplaceable_ms")
    }
    (_, small), *_, (label, large) = replays
    keys[f"decision_growth_{label}"] = round(large["decision_ms_p50"] / small["decision_ms_p50"], 3)
    for name in ("rss_mib", "first_decision_ms", "explained_first_ms", "explained_again_ms"):
        keys[f"{name}_{label}"] = large[name]
    return keys
