"""The two kinds of pods that are compared. Both run the same container, with the driver of the same GPU in it.

A pod of default-scheduler names its GPU by hand, and the stub of NVIDIA's runtime puts the driver into its container.
It asks for CPU alone: a device plugin hands out whole cards, so twenty such pods at once would need twenty cards, and
its answer to the kubelet takes far less time than the kubelet's own rounds. Without a GPU at all it would be spared
the runtime's work on the driver, which is not ours. Our pod declares two lines and gets all else from the webhook.
"""

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
class Side:
    """One kind of pods.

    Attributes:
        name: in keys and progress: `plimsoll` or `native`.
    """

    name: str

    def pod(self, name: str, *command: str) -> Object:
        """A pod of this kind that runs a command."""
        if self is NATIVE:
            visible = {"NVIDIA_VISIBLE_DEVICES": UUIDS[0]}
            return program_pod(name, *command, env=visible, change=_request, runtimeClassName="nvidia")
        lines = {"plimsoll.dev/gpu-memory": MEMORY, "plimsoll.dev/gpu-share": str(SHARE_PCT)}
        return program_pod(name, *command, limits=lines, change=_request, schedulerName="plimsoll")


def _request(container: dict[str, Any]) -> None:
    container["resources"]["requests"] = {"cpu": CPU, **container["resources"]["limits"]}


PLIMSOLL: Final = Side("plimsoll")
NATIVE: Final = Side("native")
SIDES: Final = (NATIVE, PLIMSOLL)
