"""The kinds of pods that are compared. All run the same container, with the driver of one GPU in it.

A pod of default-scheduler names its GPU by hand, and the stub of NVIDIA's runtime puts the driver into its container.
It asks for CPU alone: a device plugin hands out whole cards, so twenty such pods at once would need twenty cards, and
its answer to the kubelet takes far less time than the kubelet's own rounds. Without a GPU at all it would be spared
the runtime's work on the driver, which is not ours. Our pod declares two lines and gets all else from the webhook.

Where our pod makes the pool take a GPU, a pod that asks the device plugin for a whole card stands beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.node.driver import UUIDS
from tests.node.node import program_pod
from tests.servers.apiserver import Object

MEMORY: Final = "2Gi"
SHARE_PCT: Final = 5
"""Twenty pods at once have room on the node's two GPUs: 40 of 46 GiB, and 100 of 200 %."""
CPU: Final = "10m"
"""Requested, and no limit: a limit holds back the container's start as well."""


@dataclass(frozen=True, slots=True)
class PodKind:
    """One kind of pods.

    Attributes:
        name: the name in keys and progress: `plimsoll` or `native`.
        pod: makes a pod of this kind from its name and its command.
    """

    name: str
    pod: Callable[..., Object]


def _plimsoll_pod(name: str, *command: str) -> Object:
    lines = {"plimsoll.dev/gpu-memory": MEMORY, "plimsoll.dev/gpu-share": str(SHARE_PCT)}
    return program_pod(name, *command, limits=lines, change=_request, schedulerName="plimsoll")


def _native_pod(name: str, *command: str) -> Object:
    visible = {"NVIDIA_VISIBLE_DEVICES": UUIDS[0]}
    return program_pod(name, *command, env=visible, change=_request, runtimeClassName="nvidia")


def _whole_card_pod(name: str, *command: str) -> Object:
    card = {"nvidia.com/gpu": "1"}
    return program_pod(name, *command, limits=card, change=_request, runtimeClassName="nvidia")


def _request(container: dict[str, Any]) -> None:
    container["resources"]["requests"] = {"cpu": CPU, **container["resources"]["limits"]}


PLIMSOLL: Final = PodKind("plimsoll", _plimsoll_pod)
NATIVE: Final = PodKind("native", _native_pod)
WHOLE_CARD: Final = PodKind("native", _whole_card_pod)
KINDS: Final = (NATIVE, PLIMSOLL)
