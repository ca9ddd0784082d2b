"""This machine as a decision reads it: its GPUs, and the promises that its broker has registered.

The broker reads both. `plimsoll run` works without a monitor and a bus. So the driver's last utilisation sample
stands in for the monitor's decayed average.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from placer.core.ledger import Ledger
from placer.core.registration import adopted
from placer.core.view import NodeView, node_view
from plimsoll.broker.client import BrokerClient, RefusedError
from plimsoll.broker.wire import Description
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from plimsoll.part.errors import PlimsollError
from plimsoll.part.log import get_logger
from solo.visible import visible


class NoGpuError(PlimsollError):
    """There is no NVIDIA driver on this machine, or no GPU."""


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine at one moment.

    Attributes:
        view: its GPUs as NVML shows them to the broker.
        ledger: a booking for every registered pod.
    """

    view: NodeView
    ledger: Ledger

    def unused(self) -> NodeView:
        """The view if no process used a GPU."""
        gpus = (replace(gpu, used_bytes=0, measured_bytes={}, idle_pct=100.0) for gpu in self.view.gpus)
        return replace(self.view, gpus=tuple(gpus))


async def read_machine(
    broker: BrokerClient, description: Description, environment: Mapping[str, str] | None = None
) -> Machine:
    """Have the broker read this machine's GPUs; cancelling is safe.

    Args:
        broker: the broker.
        description: its registrations now.
        environment: the variables of a command, which may see some of the GPUs alone; None for all.

    Raises:
        NoGpuError: the driver is missing, or none of its GPUs can be read.
        BrokerAwayError: no broker answers.
        InputError: the variables leave no GPU.
    """
    try:
        read = await broker.read_gpus()
    except RefusedError as error:
        raise NoGpuError(str(error)) from error
    for gpu, reason in read.failing.items():
        get_logger().error("a GPU cannot be read and is left out", gpu=gpu, error=reason)
    if not read.gpus:
        raise NoGpuError("no GPU of the NVIDIA driver can be read; `nvidia-smi` may say why")
    gpus = read.gpus if environment is None else visible(read.gpus, environment)
    state = NodeState(node=NodeName(socket.gethostname()), epoch=1, seq=1, time="", gpus=gpus)
    ledger = Ledger()
    for _, booking in adopted(state.node, description):
        ledger.restore(booking)
    return Machine(node_view(state), ledger)
