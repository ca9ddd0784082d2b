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
from plimsoll.events import Gpu, NodeState
from plimsoll.gpu_events import GpuHealth, HealthClass
from plimsoll.ids import NodeName
from plimsoll.part.errors import PlimsollError
from solo.visible import visible


class NoGpuError(PlimsollError):
    """There is no NVIDIA driver on this machine, or no GPU."""


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine at one moment.

    Attributes:
        view: its GPUs as NVML shows them to the broker; those that NVML cannot read are faults of the view.
        ledger: a booking for every registered pod.
    """

    view: NodeView
    ledger: Ledger

    def unused(self) -> NodeView:
        """The view if no process used a GPU, and each GPU that can be read were well."""
        read = (*self.view.gpus, *self.view.faulty)
        gpus = tuple(replace(gpu, used_bytes=0, measured_bytes={}, idle_pct=100.0) for gpu in read)
        known = {gpu.uuid for gpu in read}
        faults = tuple(fault for fault in self.view.faults if fault.gpu not in known)
        return replace(self.view, gpus=gpus, faults=faults, faulty=())


async def read_machine(
    broker: BrokerClient, description: Description, environment: Mapping[str, str] | None = None
) -> Machine:
    """Have the broker read this machine's GPUs; cancelling is safe.

    Args:
        broker: the broker.
        description: its registrations now.
        environment: the variables of a command, which may see some of the GPUs alone; None for all.

    Raises:
        NoGpuError: the driver is missing, or has no GPU.
        BrokerAwayError: no broker answers.
        InputError: the variables leave no GPU.
    """
    try:
        read = await broker.read_gpus()
    except RefusedError as error:
        raise NoGpuError(str(error)) from error
    there = {gpu.uuid for gpu in read.gpus}
    lost = [one for one in read.health if one.gpu not in there and one.health is HealthClass.FATAL]
    gpus = (*read.gpus, *map(_unread, lost))
    if not gpus:
        raise NoGpuError("the NVIDIA driver has no GPU; `nvidia-smi` may say why")
    if environment is not None:
        gpus = visible(gpus, environment)
    chosen = {gpu.uuid for gpu in gpus}
    state = NodeState(
        node=NodeName(socket.gethostname()),
        epoch=1,
        seq=1,
        time="",
        gpus=tuple(gpu for gpu in gpus if gpu.uuid in there),
        health=tuple(one for one in read.health if one.gpu in chosen),
    )
    ledger = Ledger()
    for _, booking in adopted(state.node, description):
        ledger.restore(booking)
    return Machine(node_view(state), ledger)


def _unread(lost: GpuHealth) -> Gpu:
    """A GPU that NVML cannot read: variables may name it."""
    return Gpu(uuid=lost.gpu, index=lost.index, model=lost.model, usable_bytes=0, used_bytes=0, idle_pct=0.0)
