"""The lines that the broker writes for a pod that the placer bound."""

import json

import pytest

from hook.broker.pods import registration
from plimsoll.ids import ContainerName
from plimsoll.lifespan import Lifespan
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from tests.plimsoll.bound import bound


def test_the_decision_is_all_that_counts() -> None:
    """A pod's lines come from the decision, whatever its resources and other annotations say now."""
    grants = [
        {"gpu": "A", "memory_bytes": 6 * GIB, "line_bytes": 6 * GIB, "share_pct": 40, "limit_pct": 80},
        {"gpu": "B", "memory_bytes": 4 * GIB, "line_bytes": 4 * GIB, "limit_pct": 50},
    ]
    side = [{"gpu": "B", "line_bytes": 5, "share_pct": 100, "whole": True}]
    loose = [{"gpu": "A", "line_bytes": 7}]
    containers = {"main": grants, "side": side, "loose": loose}
    text = json.dumps({"score": 1.0, "policy": "headroom", "time": "t", "containers": containers})
    asks = registration(
        bound({"gpu": 1}, gpus="C", best_effort="true", gpu_share_limit="lots", decision=text)
    )
    assert asks is not None
    by_name = {one.name: one for one in asks.containers}
    main = by_name[ContainerName("main")]
    assert [(one.gpu, one.line_bytes, one.share_pct, one.limit_pct) for one in main.lines] == [
        ("A", 6 * GIB, 40, 80),
        ("B", 4 * GIB, 0, 50),
    ]
    assert [(one.name, one.whole, one.best_effort) for one in asks.containers] == [
        ("loose", False, True),
        ("main", False, False),
        ("side", True, False),
    ]


def test_init_containers_have_lines_of_their_own() -> None:
    """Init containers and sidecars of the decision are registered beside the containers, with their lifespans."""
    grant = {"gpu": "A", "memory_bytes": GIB, "line_bytes": GIB, "share_pct": 60}
    decision = {
        "score": 1.0,
        "policy": "headroom",
        "time": "t",
        "containers": {"warm": [grant], "main": [grant], "proxy": [{"gpu": "A", "line_bytes": 7}]},
        "start": {"init": ["warm", "proxy"], "sidecars": ["proxy"]},
    }
    asks = registration(bound({"gpu": 1}, decision=json.dumps(decision)))
    assert asks is not None
    assert [(one.name, one.lifespan, one.lines[0].line_bytes) for one in asks.containers] == [
        ("main", Lifespan(), GIB),
        ("proxy", Lifespan(1, sidecar=True), 7),
        ("warm", Lifespan(0), GIB),
    ]


def test_a_pod_without_a_gpu_has_no_lines() -> None:
    """A pod without a GPU has no lines."""
    assert registration(bound({})) is None


@pytest.mark.parametrize(
    ("annotations", "problem"), [({}, "None is missing"), ({"decision": "{"}, "'{' is damaged")]
)
def test_a_pod_without_a_readable_decision_is_refused_by_field(
    annotations: dict[str, str], problem: str
) -> None:
    """A bound pod that asks for a GPU and has no decision, or a damaged one, is refused by field."""
    with pytest.raises(InputError, match=rf"annotations\[plimsoll.dev/decision\]: {problem}"):
        registration(bound({"gpu": 1}, gpus="A", **annotations))
