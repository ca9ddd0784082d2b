"""The figures of a whole run under dotted keys, from those of its parts."""

from collections.abc import Mapping, Sequence

from bench.placer.schedulers import KUBE_SCHEDULER, PLACER
from bench.placer.servers import Json


def size_keys(label: str, schedulers: Mapping[str, Json]) -> Json:
    """The keys of one size: each figure of both schedulers, the ratio, and the placer's own under short keys.

    Args:
        label: `n1000` for 1000 nodes.
        schedulers: the figures of each scheduler, by its name.
    """
    keys: Json = {
        f"{label}.{scheduler}.{name}": value
        for scheduler, found in schedulers.items()
        for name, value in found.items()
    }
    ours, theirs = schedulers[PLACER], schedulers[KUBE_SCHEDULER]
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
