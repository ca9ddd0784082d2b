"""The GPUs that `CUDA_VISIBLE_DEVICES` leaves to a command: by a batch system, its user, or an outer `plimsoll run`.

What always holds: the variable is read as CUDA reads it. The first entry that names no further GPU ends the list.
`NVIDIA_VISIBLE_DEVICES` is not read: it is a message to a container's runtime, and inside a container its numbers are
the host's.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from plimsoll.events import Gpu
from plimsoll.part.errors import InputError

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ORDER: Final = "CUDA_DEVICE_ORDER"
BY_BUS: Final = "PCI_BUS_ID"


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that the variable names; all where it is not set.

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
    """Refuse an index where CUDA numbers the fastest card first, and NVML by the bus: on cards of several models."""
    cards = {gpu.mig_parent or gpu.uuid: gpu for gpu in gpus}
    if len({gpu.model.partition(" MIG ")[0] for gpu in cards.values()}) > 1:
        problem = (
            "counts the GPUs in CUDA's own order, which nobody can know beforehand on cards of several models"
        )
        raise InputError(VARIABLE, value, problem, f"name GPUs by UUID, or set {ORDER}={BY_BUS}")
