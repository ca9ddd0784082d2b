"""The pod that holds a GPU of the pool.

The broker of its node names the GPU by an annotation, as soon as the kubelet has given it
(`hook.broker.reservations`). The pod names it too, where a broker cannot: its first container has the GPU and writes
the UUID as its termination message, which the kubelet puts into the pod's status. Both come by the watch that the
controller has in any case: no log is read, and no token is given to the pod. The second container keeps the GPU and
sleeps. The kubelet gives it the GPU of the first one, as containers reuse the devices of init containers before them.

What always holds: kube-scheduler places the pod like any other, so it never takes a GPU that a native pod was given.
The pod asks for nothing but the GPU, and tolerates every taint: a GPU in use is reserved again on a node that is
being drained, too.
"""

import secrets
from dataclasses import dataclass
from typing import Final

from plimsoll.ids import NodeName
from plimsoll.pool import CARD_CONTAINER, DEVICE, NODE, RESERVATION

HOLD: Final = ("sleep", "2147483647")
"""68 years. Not every `sleep` knows `infinity`."""
CARD: Final = ("python", "-m", "placer.pool.card")
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""A reservation keeps no node from leaving: the pods that use its GPU decide that."""
GRACE_S: Final = 1
"""`sleep` does not heed SIGTERM. In each further second, a GPU that was given back is still of no use to others."""


@dataclass(frozen=True, slots=True)
class Template:
    """The form of all reservations of a pool.

    Attributes:
        namespace: the namespace of the pods.
        image, pull_policy: the image of both containers.
        pull_secrets: the names of Secrets.
        runtime_class: the runtime class that brings GPUs into containers; empty: the node's default.
        priority_class: above that of native pods, which else would displace reservations; empty: none.
    """

    namespace: str
    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    runtime_class: str = ""
    priority_class: str = ""

    def pod(self, name: str, node: NodeName) -> dict[str, object]:
        """The manifest of a reservation on a node."""
        labels = {
            RESERVATION: "true",
            "app.kubernetes.io/name": "plimsoll",
            "app.kubernetes.io/part-of": "plimsoll",
            "app.kubernetes.io/component": "reservation",
        }
        annotations = {NODE: node, SAFE_TO_EVICT: "true"}
        metadata = {"name": name, "namespace": self.namespace, "labels": labels, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._spec(node)}

    def _spec(self, node: NodeName) -> dict[str, object]:
        spec: dict[str, object] = {
            "affinity": _only(node),
            "tolerations": [{"operator": "Exists"}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "imagePullSecrets": [{"name": one} for one in self.pull_secrets],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "initContainers": [self._container(CARD_CONTAINER, CARD)],
            # The kubelet lists devices by names and not by uids, and a later pod may have this pod's name.
            "containers": [self._container(f"hold-{secrets.token_hex(4)}", HOLD)],
        }
        if self.runtime_class:
            spec["runtimeClassName"] = self.runtime_class
        if self.priority_class:
            spec["priorityClassName"] = self.priority_class
        return spec

    def _container(self, name: str, command: tuple[str, ...]) -> dict[str, object]:
        return {
            "name": name,
            "image": self.image,
            "imagePullPolicy": self.pull_policy,
            "command": list(command),
            # `utility` brings NVML, and not CUDA.
            "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}],
            "resources": {"limits": {DEVICE: "1"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }


def _only(node: NodeName) -> dict[str, object]:
    """As pods of a DaemonSet are held to their nodes: by the name, whatever the node's labels are."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
