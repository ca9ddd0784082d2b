"""The figures that summarise a whole run. Each is the worst of the cases that show it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.hook.share.tenants import Json


def _largest(values: Iterable[float]) -> float | None:
    return max(map(abs, values), default=None)


def _most(values: Iterable[float]) -> float | None:
    return max(values, default=None)


def _least(values: Iterable[float]) -> float | None:
    return min(values, default=None)


@dataclass(frozen=True, slots=True)
class Key:
    """One figure of a run.

    Attributes:
        cases: the first parts of the names of the cases that show it.
        figure: the figure's name in their rows.
        worst: chooses the worst figure of all these cases.
    """

    name: str
    cases: str
    figure: str
    worst: Callable[[Iterable[float]], float | None]

    def value(self, rows: Sequence[Json]) -> float | None:
        """The worst figure. None if no case was measured; kernels that are too long to be judged are left out."""
        return self.worst(
            row[self.figure]
            for row in rows
            if row["case"].startswith(self.cases) and self.figure in row and row.get("is_judged", True)
        )

    def has_failed(self, rows: Sequence[Json]) -> bool:
        """Whether a case that shows the figure failed to run, or a figure of several such cases did."""
        return any(
            "failed" in row and (row["case"].startswith(self.cases) or self.cases.startswith(row["case"]))
            for row in rows
        )


KEYS: Final = (
    Key("coupled_progress_ratio_min", "coupled/", "coupled_progress_ratio", _least),
    Key("coupled_beside_ratio_min", "coupled/", "coupled_beside_ratio", _least),
    Key("coupled_further_ratio_min", "coupled/", "coupled_further_ratio", _least),
    Key("jitter_request_met_ratio_min", "pauses/jitter/", "jitter_request_met_ratio", _least),
    Key("loader_request_met_ratio_min", "pauses/loader/", "loader_request_met_ratio", _least),
    Key("work_conserving_ratio_min", "idle/", "work_conserving_ratio", _least),
    Key("idle_while_wanted_pct_max", "idle/", "idle_while_wanted_pct", _most),
    Key("closed_loop_request_met_ratio_min", "idle/loop/", "closed_loop_request_met_ratio", _least),
    Key("light_throughput_ratio_min", "latency/light/", "light_throughput_ratio", _least),
    Key("latency_p99_ratio_max", "latency/", "latency_p99_ratio", _most),
    Key("arrival_s", "arrival/", "arrival_s", _most),
    Key("sequential_false_refusals", "sequential", "sequential_false_refusals", _most),
    Key("broker_core_pct_8gpus", "broker/8gpus", "broker_core_pct_8gpus", _most),
    Key("alone_loss_pct", "alone/", "loss_pct", _most),
    Key("launch_added_ns", "alone/launch", "launch_added_ns", _most),
    Key("cap_error_pts_max", "cap/", "error_pts", _largest),
    Key("cap_ripple_pts_max", "cap/", "ripple_pts", _largest),
    Key("streams_cap_error_pts_max", "streams/", "error_pts", _largest),
    Key("tenants_error_pts_max", "tenants/", "error_pts", _largest),
    Key("quota_loss_pct_default", "quota/default/", "loss_pct", _most),
)


def summary(rows: Sequence[Json], *, is_whole: bool) -> Json:
    """Every key, None where it was not measured; and the failures: cases, and the keys that they leave in doubt.

    In a whole run, a key without a value counts as failed.
    """
    values = {key.name: key.value(rows) for key in KEYS}
    in_doubt = [key.name for key in KEYS if key.has_failed(rows) or (is_whole and values[key.name] is None)]
    return {**values, "failed": [*(row["case"] for row in rows if "failed" in row), *in_doubt]}
