"""The placer's HTTP API as its clients see it: the live table, `plimsoll run`'s relatives, dashboards.

`GET /v1/state` answers a `State`. Where the placer places local pods, `POST /v1/pods` takes manifests (YAML or
JSON, several documents allowed) and answers the `PodRow`s they became; `DELETE /v1/pods/<uid>` ends one. A refused
request answers 400 with a `Problem`.
"""

from typing import Final

from msgspec import Struct

from plimsoll.events import Task
from plimsoll.ids import GpuUuid, NodeName, PodUid

STATE_PATH: Final = "/v1/state"
PODS_PATH: Final = "/v1/pods"


class GpuRow(Struct, frozen=True, kw_only=True):
    """One GPU: what was reported of it, and what the ledger promised on it.

    Attributes:
        free_bytes: headroom; negative where measured use passed the promises.
        free_share_pct: compute share not yet promised, 0–100.
        score: its place in the sorted list, higher is better.
    """

    uuid: GpuUuid
    index: int
    model: str
    usable_bytes: int
    used_bytes: int
    idle_pct: float
    free_bytes: int
    free_share_pct: int
    score: float
    tasks: tuple[Task, ...] = ()


class NodeRow(Struct, frozen=True, kw_only=True):
    """One node; `epoch` and `seq` are its last report's."""

    node: NodeName
    score: float
    epoch: int
    seq: int
    time: str
    gpus: tuple[GpuRow, ...]


class PodRow(Struct, frozen=True, kw_only=True):
    """One pod of ours.

    Attributes:
        phase: Pending, Running, Succeeded or Failed, as in Kubernetes.
        gpus: the GPUs of each container, empty while it waits.
        exit_code: of the first container that failed, else 0 once all ended; None before.
        message: why it waits or failed, for people.
    """

    namespace: str
    name: str
    uid: PodUid
    phase: str
    node: NodeName | None = None
    gpus: dict[str, tuple[GpuUuid, ...]] = {}
    exit_code: int | None = None
    message: str = ""


class State(Struct, frozen=True, kw_only=True):
    """Everything the live table shows; nodes in the sorted list's order, best first."""

    nodes: tuple[NodeRow, ...] = ()
    pods: tuple[PodRow, ...] = ()


class Problem(Struct, frozen=True, kw_only=True):
    """Why a request was refused."""

    message: str
