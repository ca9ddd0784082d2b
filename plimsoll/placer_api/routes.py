"""The table of the placer's HTTP API: each path with what it takes and answers. Server and OpenAPI document read it.

What always holds: a path that changes something is served on the control socket alone, which only its owner can open.
All others are served on the TCP port too. There the placer may ask for a bearer token, except for `is_open` paths.
"""

from dataclasses import dataclass
from typing import Any, Final

from plimsoll.placer_api.explain import Explained
from plimsoll.placer_api.http import (
    EXPLAIN_PATH,
    GPUS_PATH,
    NODES_PATH,
    OPENAPI_PATH,
    PODS_PATH,
    RELOCATION_PATH,
    STATE_PATH,
    GpuPage,
    NodePage,
    PodRow,
    Problem,
    State,
)
from plimsoll.placer_api.relocation import RelocationPreview

JSON: Final = "application/json"
TEXT: Final = "text/plain"
YAML: Final = "application/yaml"

MOST_ROWS: Final = 500
"""The most rows of a page: some 1 MiB with 8 GPUs each."""

DEFAULT_ROWS: Final = 100
DEFAULT_REASONS: Final = 20
"""Rows of a page where the request does not say."""


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter of the query. It may stand once.

    Attributes:
        text: the meaning, for people.
        default: of a whole number, which may be 1 to `MOST_ROWS`; None for a text, which may be absent.
    """

    name: str
    text: str
    default: int | None = None


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """An answer.

    Attributes:
        text: when it is given, for people.
        body: the type of its body; None for a body that is no JSON of ours, or none at all.
        content: its content type; None without a body.
    """

    status: int
    text: str
    body: object = None
    content: str | None = JSON


@dataclass(frozen=True, slots=True)
class Route:
    """A path.

    Attributes:
        operation: the name of the route, unique.
        summary: a sentence for people.
        path_texts: the meaning of each name in the path.
        takes: the content types of the request's body; empty without one.
        has_etag: the answer has an ETag, and `If-None-Match` is heeded.
        owner_only: served on the control socket alone.
        is_open: served to everybody, also where the placer asks for a token.
    """

    operation: str
    method: str
    path: str
    summary: str
    answers: tuple[RouteAnswer, ...]
    query: tuple[Query, ...] = ()
    path_texts: tuple[tuple[str, str], ...] = ()
    takes: tuple[str, ...] = ()
    has_etag: bool = False
    owner_only: bool = False
    is_open: bool = False


_BAD: Final = RouteAnswer(400, "A parameter cannot be read.", Problem)
_NO_POD: Final = RouteAnswer(404, "There is no such pod.", Problem)
_SAME: Final = RouteAnswer(304, "The page is still as its ETag in If-None-Match says.", content=None)
_NOT_NOW: Final = RouteAnswer(503, "The placer cannot answer now; ask again in some seconds.", Problem)

REFUSALS: Final = (
    RouteAnswer(401, "The placer asks for a bearer token, and this one is missing or not accepted.", Problem),
    RouteAnswer(403, "The token's owner may not read this path.", Problem),
    _NOT_NOW,
)
"""The answers of a TCP port whose placer asks for a token, besides those of the path."""

_LIMIT: Final = Query("limit", "The most rows of the page.", DEFAULT_ROWS)
_AFTER: Final = Query(
    "continue",
    "`continue` of the page before. The next page begins after that row, also if the row is gone by now.",
)
_NODE: Final = Query("node", "Only this node.")
_MODEL: Final = Query("model", "Only GPUs of this model, and nodes that have one.")

ROUTES: Final = (
    Route(
        "state",
        "GET",
        STATE_PATH,
        "All nodes in the order of the sorted list, local pods, and pods in doubt.",
        (RouteAnswer(200, "The state.", State),),
    ),
    Route(
        "nodes",
        "GET",
        NODES_PATH,
        "A page of the nodes that report, by name.",
        (RouteAnswer(200, "The page.", NodePage), _SAME, _BAD),
        (_LIMIT, _AFTER, _NODE, _MODEL),
        has_etag=True,
    ),
    Route(
        "gpus",
        "GET",
        GPUS_PATH,
        "A page of GPUs, by node and UUID.",
        (RouteAnswer(200, "The page.", GpuPage), _SAME, _BAD),
        (_LIMIT, _AFTER, _NODE, _MODEL),
        has_etag=True,
    ),
    Route(
        "explain",
        "GET",
        EXPLAIN_PATH,
        "Why a pod waits, or where it runs and what may slow it.",
        (RouteAnswer(200, "The explanation.", Explained), _BAD, _NO_POD, _NOT_NOW),
        (
            Query("limit", "The most nodes without a place on the page.", DEFAULT_REASONS),
            Query("continue", "`waiting.continue` of the page before."),
            Query("reason", "Only nodes whose first reason is this text."),
        ),
        (("namespace", "The pod's namespace."), ("name", "The pod's name.")),
    ),
    Route(
        "relocation",
        "GET",
        RELOCATION_PATH,
        "Which pods would move so that a waiting pod fits, or so that a whole GPU is free.",
        (RouteAnswer(200, "The plan, or why there is none.", RelocationPreview), _BAD, _NO_POD, _NOT_NOW),
        (
            Query(
                "namespace",
                "The waiting pod's namespace; `default` where only `pod` is given, and ignored without `pod`.",
            ),
            Query("pod", "The waiting pod's name. Without it, a whole GPU is to be freed."),
        ),
    ),
    Route(
        "openapi",
        "GET",
        OPENAPI_PATH,
        "This document.",
        (RouteAnswer(200, "The document.", dict[str, Any]),),
    ),
    Route(
        "metrics",
        "GET",
        "/metrics",
        "Metrics for Prometheus, in the format that `Accept` asks for.",
        (RouteAnswer(200, "The metrics.", content="*/*"),),
    ),
    Route(
        "healthy",
        "GET",
        "/healthz",
        "Whether the process lives.",
        (RouteAnswer(200, "It does.", content=TEXT),),
        is_open=True,
    ),
    Route(
        "ready",
        "GET",
        "/readyz",
        "Whether the placer can place pods.",
        (
            RouteAnswer(200, "It can.", content=TEXT),
            RouteAnswer(503, "The lines name what is missing.", content=TEXT),
        ),
        is_open=True,
    ),
    Route(
        "submit",
        "POST",
        PODS_PATH,
        "Submit local pods. All are accepted or none.",
        (
            RouteAnswer(201, "The pods wait.", list[PodRow]),
            RouteAnswer(400, "A manifest cannot work; the message names field, value and remedy.", Problem),
            RouteAnswer(413, "The body is too large.", Problem),
        ),
        takes=(YAML, JSON),
        owner_only=True,
    ),
    Route(
        "local_pods",
        "GET",
        PODS_PATH,
        "All local pods, in order of arrival.",
        (RouteAnswer(200, "The pods.", list[PodRow]),),
        owner_only=True,
    ),
    Route(
        "end",
        "DELETE",
        PODS_PATH + "/{uid}",
        "End a local pod, and wait until its processes are gone.",
        (RouteAnswer(200, "The pod's last row.", PodRow), _NO_POD),
        path_texts=(("uid", "The pod's uid."),),
        owner_only=True,
    ),
)
"""All paths. Those of local pods are served only where the placer has local nodes."""
