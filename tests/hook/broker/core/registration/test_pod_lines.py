"""The lines that the broker writes for a pod that the placer bound."""

import json

import pytest

from hook.broker.core.registration.pod_lines import registration
from plimsoll.ids import ContainerName
from plimsoll.lifespan import Lifespan
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from tests.plimsoll.bound import bound, first_form


def test_a_declared_pods_line_is_its_declaration_on_each_gpu() -> None:
    """8Gi and 60 percent over two GPUs are 4Gi and 30 percent on each, whatever lines the decision has."""
    asked: dict[str, str | int] = {"gpu-memory": "8Gi", "gpu-share": 60, "gpu": 2}
    asks = registration(bound(asked, gpus="A,B", decision=first_form(A=1, B=1)))
    assert asks is not None
    assert (asks.pod, asks.namespace, asks.name) == ("u", "ns", "p")
    lines = asks.containers[0].lines
    assert [(line.gpu, line.line_bytes, line.share_pct) for line in lines] == [
        ("A", 4 * GIB, 30),
        ("B", 4 * GIB, 30),
    ]


def test_a_resized_line_stands_over_the_declaration_where_it_was_resized() -> None:
    """After a resize of one of two GPUs, that GPU has the new line and the other the declared one."""
    asked: dict[str, str | int] = {"gpu-memory": "8Gi", "gpu": 2}
    lines = json.dumps({"main": {"A": 6 * GIB}, "other": {"B": 1}})
    asks = registration(bound(asked, gpus="A,B", decision=first_form(), lines=lines))
    assert asks is not None
    assert [line.line_bytes for line in asks.containers[0].lines] == [6 * GIB, 4 * GIB]


def test_a_resized_share_stands_over_declaration_and_limit() -> None:
    """A resized share and limit hold on each of the container's GPUs.

    Its line and the pod's other containers do not change.
    """
    asked: dict[str, str | int] = {"gpu-memory": "8Gi", "gpu-share": 60, "gpu": 2}
    for name, terms in (("main", (40, 80)), ("other", (30, 50))):
        shares = json.dumps({name: {"share_pct": 40, "limit_pct": 80}})
        asks = registration(
            bound(asked, gpus="A,B", decision=first_form(), gpu_share_limit="50", shares=shares)
        )
        assert asks is not None
        lines = asks.containers[0].lines
        assert [(line.line_bytes, line.share_pct, line.limit_pct) for line in lines] == [
            (4 * GIB, *terms)
        ] * 2


def test_a_best_effort_pods_line_is_what_the_placer_found_free() -> None:
    """A best-effort pod's line comes with the decision. Without one the line is 0 and never a guess."""
    for decision, line_bytes in ((first_form(A=5 * GIB), 5 * GIB), (first_form(B=5 * GIB), 0)):
        asks = registration(bound({"gpu": 1}, best_effort="true", gpus="A", decision=decision))
        assert asks is not None
        assert asks.containers[0].best_effort
        assert asks.containers[0].lines[0].line_bytes == line_bytes


def test_a_whole_gpu_is_told_as_whole() -> None:
    """A whole GPU has no limits, as it is the container's alone."""
    asks = registration(bound({"gpu": 1}, gpus="A", decision=first_form(A=23 * GIB)))
    assert asks is not None
    assert asks.containers[0].whole
    assert asks.containers[0].lines[0].share_pct == 100


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
        bound({"gpu": 1}, gpus="C", best_effort="true", gpu_share_limit="lots", lines="{", decision=text)
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
    ("asked", "annotations", "field"),
    [
        (
            {"gpu": 2, "gpu-memory": "2Mi"},
            {"decision": first_form()},
            r"annotations\[gpus.plimsoll.dev/main\]",
        ),
        ({}, {"decision": first_form()}, r"annotations\[gpus.plimsoll.dev/main\]"),
        ({"gpu": 1}, {}, r"annotations\[plimsoll.dev/decision\]: None is missing"),
        ({"gpu": 1}, {"decision": "{"}, r"annotations\[plimsoll.dev/decision\]"),
        (
            {"gpu": 1},
            {"decision": first_form(), "lines": '{"main": {"A": 0}}'},
            r"annotations\[plimsoll.dev/lines\]",
        ),
        (
            {"gpu": 1},
            {"decision": first_form(), "shares": '{"main": 40}'},
            r"annotations\[plimsoll.dev/shares\]",
        ),
    ],
)
def test_a_contradictory_answer_is_refused_by_field(
    asked: dict[str, str | int], annotations: dict[str, str], field: str
) -> None:
    """A decision that does not match the demand, or a damaged decision or resize, is refused by field."""
    with pytest.raises(InputError, match=field):
        registration(bound(asked, gpus="A", **annotations))
