"""This machine as a decision reads it: its GPUs, and the promises that its broker has registered.

The broker reads both. `plimsoll run` works without a monitor and a bus. So the driver's last utilisation sample
stands in for the monitor's decayed average.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from placer.core.ledger import Ledger
from placer.core.registration import adopted
from placer.core.view import NodeView, node_view
from plimsoll.broker.client import BrokerClient, RefusedError
from plimsoll.broker.wire import Description
from plimsoll.events import Gpu, NodeState
from plimsoll.gpu_events import GpuHealth, HealthClass
from plimsoll.ids import NodeName
from plimsoll.part.errors import InputError, PlimsollError


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


VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
BY_BUS: Final = "PCI_BUS_ID"


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves to a command; all where it is not set.

    A batch system sets it, a user, or an outer `plimsoll run`. As in CUDA, the first entry that names no further GPU
    ends the list. `NVIDIA_VISIBLE_DEVICES` is not read: it is a message to a container's runtime, and inside a
    container its numbers are the host's.

    Args:
        gpus: the machine's; a MIG instance has the index of its card.
        environment: the command's variables.

    Raises:
        InputError: the variable names none of them, or counts them in an order that NVML does not show.
    """
    value = environment.get(VARIABLE)
    if value is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for entry in map(str.strip, value.split(",")):
        if entry.isdecimal() and environment.get(ORDER) != BY_BUS:
            _check_order(gpus, value)
        named = _named(entry, gpus)
        if not named or any(gpu in chosen for gpu in named):
            break
        chosen += named
    if not chosen:
        remedy = "name GPUs by index or by a UUID of `nvidia-smi -L`, or unset it"
        raise InputError(VARIABLE, value, "shows the command no GPU of this machine", remedy)
    return tuple(chosen)


def _named(entry: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPU of an entry: an index, a UUID or its beginning; of a card in MIG mode, the instances."""
    if entry.isdecimal():
        return [gpu for gpu in gpus if gpu.index == int(entry)]
    if not entry.startswith(("GPU-", "MIG-")) or len(entry) == len("GPU-"):
        return []
    cards = {uuid for gpu in gpus if (uuid := gpu.mig_parent or gpu.uuid).startswith(entry)}
    instances = [gpu for gpu in gpus if gpu.mig_parent is not None and gpu.uuid.startswith(entry)]
    if len(cards) == 1 and not instances:
        return [gpu for gpu in gpus if (gpu.mig_parent or gpu.uuid) in cards]
    return instances if len(instances) == 1 else []


def _check_order(gpus: Sequence[Gpu], value: str) -> None:
    """Refuse an index on cards of several models: there CUDA numbers the fastest card first, and NVML by the bus."""
    cards = {gpu.mig_parent or gpu.uuid: gpu for gpu in gpus}
    if len({gpu.model.partition(" MIG ")[0] for gpu in cards.values()}) > 1:
        problem = (
            "counts the GPUs in CUDA's own order, which nobody can know beforehand on cards of several models"
        )
        raise InputError(VARIABLE, value, problem, f"name GPUs by UUID, or set {ORDER}={BY_BUS}")
