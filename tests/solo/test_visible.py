"""`CUDA_VISIBLE_DEVICES` around `plimsoll run`: the command runs on one of the GPUs that it names, or is refused."""

import pytest

from plimsoll.events import Gpu
from plimsoll.ids import GpuUuid
from plimsoll.part.errors import InputError
from solo.machine import visible
from tests.placer.local.world import gpu_of
from tests.solo.machine import Machine


def _gpu(uuid: str, index: int, model: str = "NVIDIA L4", mig_parent: str | None = None) -> Gpu:
    parent = None if mig_parent is None else GpuUuid(mig_parent)
    return Gpu(
        uuid=GpuUuid(uuid),
        index=index,
        model=model,
        usable_bytes=1,
        used_bytes=0,
        idle_pct=100,
        tasks=(),
        mig_parent=parent,
    )


CARDS = (
    _gpu("GPU-aa00", 0),
    _gpu("GPU-ab00", 1),
    _gpu("MIG-c1", 2, mig_parent="GPU-c0"),
    _gpu("MIG-c2", 2, mig_parent="GPU-c0"),
)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("1", ["GPU-ab00"]),
        ("1,0", ["GPU-ab00", "GPU-aa00"]),
        ("0,7,1", ["GPU-aa00"]),
        ("0,0,1", ["GPU-aa00"]),
        (" 1 , 0 ", ["GPU-ab00", "GPU-aa00"]),
        ("GPU-ab", ["GPU-ab00"]),
        ("GPU-a", None),
        ("GPU-", None),
        ("GPU-ab00,-1,0", ["GPU-ab00"]),
        ("MIG-c2", ["MIG-c2"]),
        ("MIG-c", None),
        ("GPU-c0", ["MIG-c1", "MIG-c2"]),
        ("2", ["MIG-c1", "MIG-c2"]),
        ("", None),
        ("-1", None),
        ("NoDevFiles", None),
        ("all", None),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(value: str, names: list[str] | None) -> None:
    """The first entry that names no further GPU ends the list, and an empty list is refused by name."""
    environment = {"CUDA_VISIBLE_DEVICES": value}
    if names is None:
        with pytest.raises(InputError, match="shows the command no GPU of this machine"):
            visible(CARDS, environment)
    else:
        assert [gpu.uuid for gpu in visible(CARDS, environment)] == names


def test_an_index_is_refused_where_its_order_cannot_be_known() -> None:
    """Cards of several models are counted by speed, unless the environment asks for the order of the bus."""
    mixed = (CARDS[0], _gpu("GPU-ff", 1, "NVIDIA H100"))
    with pytest.raises(InputError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        visible(mixed, {"CUDA_VISIBLE_DEVICES": "1"})
    by_bus = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible(mixed, by_bus) == mixed[1:]
    assert visible(mixed, {"CUDA_VISIBLE_DEVICES": "GPU-ff"}) == mixed[1:]
    assert visible(mixed, {}) == mixed


async def test_a_command_runs_where_the_variable_points_or_not_at_all(machine: Machine) -> None:
    """The chosen GPU is the named one, though another comes first, and an empty list is bad input."""
    machine.add_gpu("there")
    show = ("--gpu-memory", "1Gi", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert (await machine.run(*show, CUDA_VISIBLE_DEVICES="1"))[:2] == (0, f"{gpu_of('there')}\n")
    code, _, errors = await machine.run(*show, CUDA_VISIBLE_DEVICES="")
    assert (code, errors.count("\n")) == (2, 1)
    assert "CUDA_VISIBLE_DEVICES: '' shows the command no GPU of this machine; name GPUs" in errors
