"""Faults of a GPU's hardware: the book's tool injects them, and NVML shows them until the GPU is reset."""

from pathlib import Path

import pynvml

from tests.emulator.nvml_program import Program, tool

FIELDS = {
    "ecc": pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    "retired": pynvml.NVML_FI_DEV_RETIRED_PENDING,
    "remap": pynvml.NVML_FI_DEV_REMAPPED_PENDING,
    "remap-failed": pynvml.NVML_FI_DEV_REMAPPED_FAILURE,
    "recovery": pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
}


def figures(nvml: Program, gpu: int) -> list[int]:
    """The fields' values, and the reasons of lowered clocks."""
    fields = f"n.nvmlDeviceGetFieldValues(gpu({gpu}), {list(FIELDS.values())})"
    found: list[int] = nvml(f"[each.value.ullVal for each in {fields}]")
    return [*found, nvml(f"n.nvmlDeviceGetCurrentClocksEventReasons(gpu({gpu}))")]


def test_each_fault_is_shown_on_its_gpu_until_a_reset(nvml: Program, node_file: Path) -> None:
    """Every figure is what was injected on that GPU, and a reset ends all of them and starts its energy anew."""
    idle = pynvml.nvmlClocksEventReasonGpuIdle
    assert figures(nvml, 0) == [0, 0, 0, 0, 0, idle]
    for value, name in enumerate((*FIELDS, "clocks"), start=2):
        tool(node_file, "fault", "0", name, str(value))
    assert figures(nvml, 0) == [2, 3, 4, 5, 6, 7]
    assert figures(nvml, 1) == [0, 0, 0, 0, 0, idle]
    before = nvml("n.nvmlDeviceGetTotalEnergyConsumption(gpu(0))")
    tool(node_file, "lose", "0")
    tool(node_file, "reset", "0")
    assert figures(nvml, 0) == [0, 0, 0, 0, 0, idle]
    assert nvml("n.nvmlDeviceGetTotalEnergyConsumption(gpu(0))") < before
