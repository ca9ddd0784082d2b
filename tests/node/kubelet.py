"""A real kubelet without systemd, disk limits and checks of the machine, which are not ours to test."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from plimsoll_cli.demo.servers import ServerKind
from tests.cluster import assets
from tests.node.network import NODE_IP
from tests.node.places import NODE

READY: Final = "Starting kubelet main sync loop"


def kubelet_kind(root: Path, socket: Path, kubeconfig: Path) -> ServerKind:
    """The kubelet as a server of the tests.

    Args:
        root: its directory, which holds sockets and so has a short path. Its parent's name is also that of the
            control group of all pods: another node on this machine has another one.
        socket: containerd's.
        kubeconfig: the node's own credentials.
    """
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.json").write_text(json.dumps(_config(root, socket)))

    def arguments(_: int, __: Path) -> Sequence[str]:
        return (
            f"--config={root / 'config.json'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={NODE}",
            # Without it, the kubelet would ask for the name by DNS at each status, and no server answers here.
            f"--node-ip={NODE_IP}",
            f"--root-dir={root}",
            f"--cert-dir={root / 'pki'}",
            "--node-labels=nvidia.com/gpu.present=true",
            "--v=2",
        )

    return ServerKind("kubelet", "https", READY, lambda: assets.binary("kubelet"), arguments)


def _config(root: Path, socket: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{root.parent.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "enforceNodeAllocatable": [],
        "volumePluginDir": str(root / "volume-plugins"),
        "podLogsDir": str(root / "pod-logs"),
        "resolvConf": "",
        # The kubelet answers each client in this network namespace: `kubectl logs` and `exec` go by the API server.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        # The disk of a developer's machine may be nearly full. No test is about that.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "2s",
        "serializeImagePulls": False,
        "registerNode": True,
    }
