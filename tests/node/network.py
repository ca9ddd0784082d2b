"""The network namespace of a test node: the node's address, the address of the API server's Service, and pods' own.

There is no kube-proxy. The node itself has the Service's address, so that pods reach the API server by it.
"""

import subprocess
from typing import Final

NODE_IP: Final = "10.77.0.2"
GATEWAY: Final = "10.77.0.1"
SERVICE_IP: Final = "10.0.0.1"
"""The first address of `--service-cluster-ip-range`, which the kubelet gives to pods as the API server's."""
POD_SUBNET: Final = "10.88.0.0/16"

_COMMANDS: Final = (
    "link set lo up",
    f"address add {SERVICE_IP}/32 dev lo",
    # The kubelet takes the address of the interface with the default route. Nothing leaves by it.
    "link add eth0 type veth peer name gateway0",
    f"address add {NODE_IP}/24 dev eth0",
    f"address add {GATEWAY}/24 dev gateway0",
    "link set eth0 up",
    "link set gateway0 up",
    f"route add default via {GATEWAY} dev eth0",
)


def set_up() -> None:
    """Give this process's fresh network namespace its interfaces.

    Raises:
        CalledProcessError: the kernel or the rights do not allow it.
    """
    for command in _COMMANDS:
        subprocess.run(["ip", *command.split()], check=True)
