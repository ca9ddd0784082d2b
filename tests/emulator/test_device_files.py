"""In a container, the emulated driver shows the GPUs whose device files are there."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pynvml
import pytest

from plimsoll.native import PROGRAMS
from tests.emulator.nvml_program import NODE, NvmlRefusedError, Program, environment

UUIDS = [f"GPU-5a1c0d2e-0000-0000-0000-00000000000{number}" for number in (1, 2, 3)]


def look(node_file: Path, **variables: str) -> dict[str, Any]:
    """A node as an ordinary program sees it."""
    surroundings = {**environment(node_file), **variables}
    output = subprocess.run([PROGRAMS / "view"], env=surroundings, check=True, capture_output=True, text=True)
    seen: dict[str, Any] = json.loads(output.stdout)
    return seen


def gpus(seen: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The GPUs that CUDA and NVML show, in their order."""
    cuda, nvml = ([gpu["uuid"] for gpu in seen[api]["gpus"]] for api in ("cuda", "nvml"))
    return cuda, nvml


def test_only_gpus_with_a_device_file_are_shown(tmp_path: Path) -> None:
    """CUDA and NVML agree, and number the shown GPUs from 0. Other processes of the node see all GPUs meanwhile."""
    node_file, devices = tmp_path / "node", tmp_path / "dev"
    node_file.write_text(NODE)
    devices.mkdir()
    for shown in ([], [1], [0, 2]):
        for file in devices.iterdir():
            file.unlink()
        for index in shown:
            (devices / f"nvidia{index}").touch()
        seen = look(node_file, PLIMSOLL_EMULATOR_DEVICES=str(devices))
        assert gpus(seen) == ([UUIDS[index] for index in shown],) * 2
        assert seen["cuda"]["result"] == (0 if shown else 100)  # CUDA_ERROR_NO_DEVICE
        assert gpus(look(node_file)) == (UUIDS, UUIDS)
    second = look(node_file, PLIMSOLL_EMULATOR_DEVICES=str(devices), CUDA_VISIBLE_DEVICES="1")
    assert gpus(second) == ([UUIDS[2]], [UUIDS[0], UUIDS[2]])


def test_indices_are_those_of_the_shown_and_minors_those_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: index 0 may be `/dev/nvidia1`. A hidden GPU is not found by its UUID either."""
    node_file = tmp_path / "node"
    node_file.write_text(NODE)
    (tmp_path / "nvidia1").touch()
    monkeypatch.setenv("PLIMSOLL_EMULATOR_DEVICES", str(tmp_path))
    with Program(node_file) as program:
        program("n.nvmlInit()")
        assert program("n.nvmlDeviceGetCount()") == 1
        assert program("n.nvmlDeviceGetIndex(gpu(0))") == 0
        assert program("n.nvmlDeviceGetMinorNumber(gpu(0))") == 1
        assert program("n.nvmlDeviceGetTopologyNearestGpus(gpu(0), 50)") == []
        found = f"n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByUUID('{UUIDS[1]}'))"
        assert program(found) == UUIDS[1]
        with pytest.raises(NvmlRefusedError) as refused:
            program(f"n.nvmlDeviceGetHandleByUUID('{UUIDS[0]}')")
        assert refused.value.code == pynvml.NVML_ERROR_NOT_FOUND
