"""This machine as a decision reads it: its GPUs through NVML, and the promises that its broker has registered.

`plimsoll run` works without a monitor and a bus. So the driver's last utilisation sample stands in for the monitor's
decayed average.
"""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from placer.core.ledger import Ledger
from placer.core.registration import adopted
from placer.core.view import NodeView, node_view
from plimsoll.broker.wire import Description
from plimsoll.events import Gpu, NodeState, Phase, Task
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.nvml.library import Nvml
from plimsoll.nvml.readings import GpuSample, NvmlAwayError
from plimsoll.part.errors import PlimsollError
from solo.visible import visible

UNKNOWN_IDLE_PCT: Final = 100.0
"""The idle time, in percent, of a GPU whose driver measures no utilisation (MIG). Memory alone then decides."""


class NoGpuError(PlimsollError):
    """There is no NVIDIA driver on this machine, or no GPU."""


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine at one moment.

    Attributes:
        view: its GPUs as NVML shows them.
        ledger: a booking for every registered pod.
    """

    view: NodeView
    ledger: Ledger

    def unused(self) -> NodeView:
        """The view if no process used a GPU."""
        gpus = (replace(gpu, used_bytes=0, measured_bytes={}, idle_pct=100.0) for gpu in self.view.gpus)
        return replace(self.view, gpus=tuple(gpus))


async def read_machine(description: Description, environment: Mapping[str, str] | None = None) -> Machine:
    """Read this machine's GPUs, on a thread; cancelling is safe.

    Args:
        description: the broker's registrations now.
        environment: the variables of a command, which may see some of the GPUs alone; None for all.

    Raises:
        NoGpuError: the driver is missing, or none of its GPUs can be read.
        InputError: the variables leave no GPU.
    """
    owners = {process.pid: use.pod for use in description.containers for process in use.processes}
    state = await asyncio.to_thread(_read_gpus, owners)
    if environment is not None:
        state = msgspec.structs.replace(state, gpus=visible(state.gpus, environment))
    ledger = Ledger()
    for _, booking in adopted(state.node, description):
        ledger.restore(booking)
    return Machine(node_view(state), ledger)


def _read_gpus(owners: Mapping[int, PodUid]) -> NodeState:
    """A report of the machine's GPUs. Blocks.

    Args:
        owners: the pod of each pid that belongs to a registered one.
    """
    nvml = Nvml()
    try:
        samples = nvml.read({})
    except NvmlAwayError as error:
        remedy = error.remedy or "install it, or, for the emulator, set PLIMSOLL_EMULATOR and LD_LIBRARY_PATH"
        raise NoGpuError(f"{error}; {remedy}") from error
    finally:
        nvml.close()
    if not samples:
        raise NoGpuError("no GPU of the NVIDIA driver can be read; `nvidia-smi` may say why")
    gpus = tuple(_gpu(sample, owners) for sample in samples)
    return NodeState(node=NodeName(socket.gethostname()), epoch=1, seq=1, time="", gpus=gpus)


def _gpu(sample: GpuSample, owners: Mapping[int, PodUid]) -> Gpu:
    reading = sample.reading
    busy_pct = sample.utilisation[-1][1] if sample.utilisation else 100.0 - UNKNOWN_IDLE_PCT
    return Gpu(
        uuid=reading.uuid,
        index=reading.index,
        model=reading.model,
        usable_bytes=reading.usable_bytes,
        used_bytes=reading.used_bytes,
        idle_pct=100.0 - busy_pct,
        mig_parent=reading.mig_parent,
        tasks=tuple(_task(pid, used, reading.uuid, owners) for pid, used in sample.used_bytes.items()),
    )


def _task(pid: int, used_bytes: int | None, gpu: GpuUuid, owners: Mapping[int, PodUid]) -> Task:
    held_bytes = used_bytes or 0
    return Task(
        pid=pid,
        start_ticks=0,
        gpu=gpu,
        phase=Phase.LOADED,
        used_bytes=held_bytes,
        peak_bytes=held_bytes,
        pod=owners.get(pid),
    )
