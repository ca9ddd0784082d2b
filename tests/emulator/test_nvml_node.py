"""NVML describes the node as its file does: versions, names, addresses, connections, and refusals."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.emulator.nvml_program import NODE, Program, environment, refusal

INIT = (sys.executable, Path(__file__).parent / "programs" / "nvml_init.py")


@pytest.fixture(scope="module")
def node_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an emulated node that no other module shares."""
    path = tmp_path_factory.mktemp("node") / "node"
    path.write_text(NODE)
    return path


@pytest.fixture(scope="module")
def nvml(node_file: Path) -> Iterator[Program]:
    """A program that has initialised NVML and nothing else."""
    with Program(node_file) as program:
        program("n.nvmlInit()")
        yield program


def test_versions_are_the_node_files(nvml: Program) -> None:
    """Driver, NVML and CUDA versions follow from the file's `driver` and `cuda`."""
    assert nvml("n.nvmlSystemGetDriverVersion()") == "570.124.06"
    assert nvml("n.nvmlSystemGetNVMLVersion()") == "12.570.124.06"
    assert nvml("n.nvmlSystemGetCudaDriverVersion()") == 12080
    assert nvml("n.nvmlSystemGetCudaDriverVersion_v2()") == 12080


def test_each_gpu_is_what_its_section_says(nvml: Program) -> None:
    """Names, uuids, capability and the facts derived from them are those of the GPU's own section."""
    assert nvml("n.nvmlDeviceGetCount()") == 3
    assert nvml("[n.nvmlDeviceGetName(gpu(i)) for i in range(2)]") == ["NVIDIA L4", "NVIDIA A100-SXM4-80GB"]
    assert nvml("n.nvmlDeviceGetUUID(gpu(1))") == "GPU-5a1c0d2e-0000-0000-0000-000000000002"
    assert nvml("[n.nvmlDeviceGetIndex(gpu(i)) for i in range(3)]") == [0, 1, 2]
    assert nvml("n.nvmlDeviceGetMinorNumber(gpu(2))") == 2
    assert nvml("n.nvmlDeviceGetCudaComputeCapability(gpu(0))") == [8, 9]
    assert nvml("[n.nvmlDeviceGetArchitecture(gpu(i)) for i in range(2)]") == [
        pynvml.NVML_DEVICE_ARCH_ADA,
        pynvml.NVML_DEVICE_ARCH_AMPERE,
    ]
    assert nvml("n.nvmlDeviceGetBrand(gpu(0))") == pynvml.NVML_BRAND_NVIDIA
    assert nvml("[n.nvmlDeviceGetNumGpuCores(gpu(i)) for i in range(2)]") == [58 * 128, 108 * 64]


def test_a_pci_address_is_given_in_every_form(nvml: Program) -> None:
    """busId, its legacy form and the numbers all name the same place."""
    nvml("pci = n.nvmlDeviceGetPciInfo(gpu(1))")
    assert nvml("[pci.domain, pci.bus, pci.device]") == [1, 0x65, 0]
    assert nvml("[pci.busId, pci.busIdLegacy]") == ["00000001:65:00.0", "0001:65:00.0"]
    assert nvml("pci.pciDeviceId & 0xffff") == 0x10DE
    nvml("more = n.nvmlPciInfoExt_v1_t(version=n.nvmlPciInfoExt_v1)")
    nvml("n.nvmlDeviceGetPciInfoExt(gpu(1), ctypes.byref(more))")
    assert nvml("[more.domain, more.bus, more.busId, more.baseClass]") == [1, 0x65, "00000001:65:00.0", 3]


@pytest.mark.parametrize("address", ["00000001:65:00.0", "0001:65:00.0", "1:65:0.0", "0001:65:00"])
def test_a_gpu_is_found_by_its_pci_address(nvml: Program, address: str) -> None:
    """Every spelling of the address finds the GPU, with or without function."""
    assert nvml(f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId({address!r}))") == 1


def test_a_gpu_is_found_by_its_uuid(nvml: Program) -> None:
    """The uuid in text and in binary finds the GPU."""
    uuid = "GPU-5a1c0d2e-0000-0000-0000-000000000003"
    assert nvml(f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID({uuid!r}))") == 2
    assert nvml(f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUIDV({uuid!r}.encode(), 1))") == 2
    binary = bytes.fromhex(uuid.removeprefix("GPU-").replace("-", ""))
    nvml(f"from ctypes import create_string_buffer; binary = create_string_buffer({binary!r}, 16)")
    assert nvml("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUIDV(binary, 2))") == 2


def test_what_is_not_there_is_refused_as_the_driver_does(nvml: Program) -> None:
    """Unknown identities are NOT_FOUND, impossible ones INVALID_ARGUMENT, missing features NOT_SUPPORTED."""
    assert refusal(nvml, "gpu(3)") == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert refusal(nvml, "n.nvmlDeviceGetHandleByUUID('GPU-0')") == pynvml.NVML_ERROR_NOT_FOUND
    assert refusal(nvml, "n.nvmlDeviceGetHandleByPciBusId('9:0:0.0')") == pynvml.NVML_ERROR_NOT_FOUND
    assert refusal(nvml, "n.nvmlDeviceGetHandleByPciBusId('here')") == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert refusal(nvml, "n.nvmlDeviceGetEccMode(gpu(0))") == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert refusal(nvml, "n.nvmlDeviceGetMigMode(gpu(0))") == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert refusal(nvml, "n.nvmlSystemGetProcessName(2**31)") == pynvml.NVML_ERROR_NOT_FOUND


def test_the_usual_questions_of_dashboards_are_answered(nvml: Program) -> None:
    """An idle GPU is cool, slow, in its resting state, and runs nothing."""
    assert nvml("n.nvmlDeviceGetTemperature(gpu(0), 0)") == 30
    assert nvml("n.nvmlDeviceGetTemperatureV(gpu(0), 0)") == 30
    assert nvml("n.nvmlDeviceGetPowerUsage(gpu(0)) < n.nvmlDeviceGetEnforcedPowerLimit(gpu(0))")
    assert nvml("n.nvmlDeviceGetPerformanceState(gpu(0))") == pynvml.NVML_PSTATE_8
    assert nvml("n.nvmlDeviceGetClockInfo(gpu(0), 1) < n.nvmlDeviceGetMaxClockInfo(gpu(0), 1)")
    assert nvml("n.nvmlDeviceGetPersistenceMode(gpu(0))") == pynvml.NVML_FEATURE_ENABLED
    assert nvml("n.nvmlDeviceGetComputeMode(gpu(0))") == pynvml.NVML_COMPUTEMODE_DEFAULT
    for kind in ("Compute", "Graphics", "MPSCompute"):
        assert nvml(f"n.nvmlDeviceGet{kind}RunningProcesses(gpu(0))") == []
    link_count, unknown = nvml(
        "[v.value.uiVal if v.nvmlReturn == 0 else -v.nvmlReturn "
        "for v in n.nvmlDeviceGetFieldValues(gpu(1), [n.NVML_FI_DEV_NVLINK_LINK_COUNT, 1])]"
    )
    assert (link_count, unknown) == (4, -pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_memory_without_processes_is_what_the_driver_reserves(nvml: Program) -> None:
    """Version 1 counts the reserved bytes as used, version 2 lists them apart; both add up to the total."""
    nvml("old = n.nvmlDeviceGetMemoryInfo(gpu(0)); new = n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2)")
    total, reserved = 24 << 30, 512 << 20
    assert nvml("[old.total, old.used, old.free]") == [total, reserved, total - reserved]
    assert nvml("[new.total, new.reserved, new.used, new.free]") == [total, reserved, 0, total - reserved]


def test_a_struct_of_another_version_is_refused(nvml: Program) -> None:
    """An unknown version of a struct is a mismatch, and nothing is written."""
    mismatch = pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert refusal(nvml, "n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2 + 1)") == mismatch
    assert refusal(nvml, "n.nvmlDeviceGetRunningProcessDetailList(gpu(0), 1, 0)") == mismatch


def test_topology_follows_the_link_sections(nvml: Program) -> None:
    """A [link] sets the path; without one the NUMA nodes do. NVLink alone does not change the PCIe path."""
    ancestor = "n.nvmlDeviceGetTopologyCommonAncestor(gpu({}), gpu({}))"
    assert nvml(ancestor.format(0, 0)) == pynvml.NVML_TOPOLOGY_INTERNAL
    assert nvml(ancestor.format(0, 1)) == nvml(ancestor.format(1, 0)) == pynvml.NVML_TOPOLOGY_MULTIPLE
    assert nvml(ancestor.format(1, 2)) == pynvml.NVML_TOPOLOGY_SYSTEM
    nearest = "[n.nvmlDeviceGetIndex(d) for d in n.nvmlDeviceGetTopologyNearestGpus(gpu(1), {})]"
    assert nvml(nearest.format(pynvml.NVML_TOPOLOGY_SINGLE)) == []
    assert nvml(nearest.format(pynvml.NVML_TOPOLOGY_MULTIPLE)) == [0]
    assert nvml(nearest.format(pynvml.NVML_TOPOLOGY_SYSTEM)) == [0, 2]


def test_nvlinks_are_active_where_a_link_gives_them(nvml: Program) -> None:
    """NV4 between two GPUs is four active links on each, which lead to the other."""
    states = nvml("[n.nvmlDeviceGetNvLinkState(gpu(1), i) for i in range(6)]")
    assert states == [1, 1, 1, 1, 0, 0]
    assert nvml("n.nvmlDeviceGetNvLinkRemotePciInfo(gpu(2), 3).busId") == "00000001:65:00.0"
    assert refusal(nvml, "n.nvmlDeviceGetNvLinkState(gpu(0), 0)") == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert refusal(nvml, "n.nvmlDeviceGetNvLinkState(gpu(1), 18)") == pynvml.NVML_ERROR_INVALID_ARGUMENT
    read, nvlink = 0, pynvml.NVML_P2P_CAPS_INDEX_NVLINK  # pynvml's own name for `read` is a tuple
    peer = "n.nvmlDeviceGetP2PStatus(gpu({}), gpu({}), {})"
    assert nvml(peer.format(1, 2, nvlink)) == pynvml.NVML_P2P_STATUS_OK
    assert nvml(peer.format(0, 1, nvlink)) == pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    assert nvml(peer.format(0, 1, read)) == pynvml.NVML_P2P_STATUS_OK
    assert nvml(peer.format(0, 2, read)) == pynvml.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED


def test_affinity_is_the_gpus_cpus_and_numa_node(nvml: Program) -> None:
    """CPU masks hold the file's list over several words; a mask that is too short gets the first words."""
    assert nvml("list(n.nvmlDeviceGetCpuAffinity(gpu(1), 2))") == [0b11110000, 1 << (68 - 64)]
    assert nvml("list(n.nvmlDeviceGetCpuAffinity(gpu(1), 1))") == [0b11110000]
    assert nvml("list(n.nvmlDeviceGetMemoryAffinity(gpu(2), 1, 0))") == [1 << 1]


def test_inits_are_counted(node_file: Path) -> None:
    """Before the first init and after the last shutdown every call returns UNINITIALIZED."""
    with Program(node_file) as program:
        program("n._LoadNvmlLibrary()")
        count = "n.nvmlDeviceGetCount()"
        assert refusal(program, count) == pynvml.NVML_ERROR_UNINITIALIZED
        program("n.nvmlInit(); n.nvmlInit(); n.nvmlShutdown()")
        assert program(count) == 3
        program("n.nvmlShutdown()")
        assert refusal(program, count) == pynvml.NVML_ERROR_UNINITIALIZED
        assert refusal(program, "n.nvmlShutdown()") == pynvml.NVML_ERROR_UNINITIALIZED
        program("n.nvmlInit()")
        assert program(count) == 3


@pytest.mark.parametrize(
    ("text", "line", "field", "value"),
    [
        ("[gpu 0]\nmemory = lots\n", 2, "memory", "lots"),
        ("[gpu 0]\nuuid = GPU-1\n", 2, "uuid", "GPU-1"),
        ("driver = 570\n[gpu 0]\n[link 0 1]\npath = PIX\n", 3, "section", "[link 0 1]"),
    ],
)
def test_a_bad_node_file_fails_init_with_one_line(
    tmp_path: Path, text: str, line: int, field: str, value: str
) -> None:
    """Init refuses, and one line on stderr names file, line, field, value and the expected form."""
    path = tmp_path / "node"
    path.write_text(text)
    ended = subprocess.run(INIT, env=environment(path), capture_output=True, text=True, check=False)
    assert ended.returncode == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    (message,) = ended.stderr.splitlines()
    assert f"{path}:{line}: {field} = '{value}': " in message


def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    """Without PLIMSOLL_EMULATOR the message names the variable to set."""
    surroundings = environment(tmp_path)
    del surroundings["PLIMSOLL_EMULATOR"]
    ended = subprocess.run(INIT, env=surroundings, capture_output=True, text=True, check=False)
    assert ended.returncode == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert "PLIMSOLL_EMULATOR" in ended.stderr
