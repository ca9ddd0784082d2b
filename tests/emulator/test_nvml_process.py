"""NVML shows the memory and work of living processes on a GPU, and nothing of dead ones."""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.emulator.nvml_program import COPY_BYTES_PER_S, MIB, NvmlRefusedError, Program

RESERVED = 512 * MIB
CONTEXT = 300 * MIB
SAMPLE_US = 50_000
USED = "n.nvmlDeviceGetMemoryInfo(gpu(0)).used"
LIST = "{p.pid: p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(gpu(0))}"
SAMPLES = (
    "[(s.timeStamp, s.sampleValue.uiVal) "
    "for s in n.nvmlDeviceGetSamples(gpu(0), n.NVML_GPU_UTILIZATION_SAMPLES, {})[1]]"
)
TRAFFIC = SAMPLES.replace("NVML_GPU", "NVML_MEMORY")


@pytest.fixture
def worker(node_file: Path) -> Iterator[Program]:
    """A program with a context on GPU 0 and 64 MiB in it."""
    with Program(node_file) as program:
        start(program, 64)
        yield program


def start(program: Program, size_mib: int) -> None:
    """Open a context on GPU 0 and allocate."""
    program(f"cuda = Cuda(); cuda.open(0); cuda.allocate({size_mib * MIB})")


def copy_s(seconds: float) -> str:
    """Code that keeps GPU 0 busy for this long."""
    return f"cuda.copy({int(seconds * COPY_BYTES_PER_S)})"


def listed(program: Program) -> dict[int, int]:
    """Bytes by pid on GPU 0."""
    return {int(pid): size for pid, size in program(LIST).items()}


def samples_since(program: Program, stamp_us: int) -> list[tuple[int, int]]:
    """GPU 0's (stamp, percent) newer than a stamp; none where NVML says NOT_FOUND."""
    try:
        return [(stamp, pct) for stamp, pct in program(SAMPLES.format(stamp_us))]
    except NvmlRefusedError as refused:
        if refused.code != pynvml.NVML_ERROR_NOT_FOUND:
            raise
        return []


def test_each_process_is_listed_with_its_bytes(nvml: Program, worker: Program, node_file: Path) -> None:
    """A process's listed bytes are its allocations and its context; GPU 0's used bytes are the sum of all."""
    with Program(node_file) as other:
        start(other, 1000)
        expected = {worker.pid: CONTEXT + 64 * MIB, other.pid: CONTEXT + 1000 * MIB}
        assert listed(nvml) == expected
        assert nvml(USED) == RESERVED + sum(expected.values())
        assert nvml("n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2).used") == sum(expected.values())
    assert nvml("n.nvmlDeviceGetComputeRunningProcesses(gpu(1))") == []


def test_every_version_of_the_list_says_the_same(nvml: Program, worker: Program) -> None:
    """The v2 and v3 lists and the detail list show the same process and bytes, outside any MIG instance."""
    expected = [[worker.pid, CONTEXT + 64 * MIB]]
    for version in ("v2", "v3"):
        nvml(f"found = n.nvmlDeviceGetComputeRunningProcesses_{version}(gpu(0))")
        assert nvml("[[p.pid, p.usedGpuMemory] for p in found]") == expected
        assert nvml("found[0].gpuInstanceId") == 0xFFFFFFFF
    details = "n.nvmlDeviceGetRunningProcessDetailList(gpu(0), 0x1000018, {})"
    assert nvml(f"[[p.pid, p.usedGpuMemory] for p in {details.format(0)}]") == expected
    assert nvml(details.format(1)) == []


def test_a_killed_process_holds_nothing(nvml: Program, worker: Program) -> None:
    """A process dead by SIGKILL is in no list, and its memory is free."""
    assert worker.pid in listed(nvml)
    worker.kill()
    assert listed(nvml) == {}
    assert nvml(USED) == RESERVED


def test_a_process_sees_itself_and_stays_alive(worker: Program, nvml: Program) -> None:
    """A process with NVML and CUDA lists itself, and its own slot does not count as a dead one's."""
    worker("n.nvmlInit()")
    assert listed(worker) == {worker.pid: CONTEXT + 64 * MIB}
    worker(f"n.nvmlShutdown(); n.nvmlInit(); cuda.allocate({2 * MIB})")
    assert listed(worker) == listed(nvml) == {worker.pid: CONTEXT + 66 * MIB}


def test_a_process_name_is_its_command(nvml: Program, worker: Program) -> None:
    """The listed pid has a name: the command as it was started."""
    command = Path(f"/proc/{worker.pid}/cmdline").read_bytes().split(b"\0")[0]
    assert nvml(f"n.nvmlSystemGetProcessName({worker.pid})") == os.fsdecode(command)


def test_samples_tell_of_work_that_nobody_watched(worker: Program, node_file: Path) -> None:
    """NVML initialised after the work has ended still returns the work's samples, and idle ones after it."""
    worker(copy_s(0.5))
    time.sleep(0.2)
    with Program(node_file) as late:
        late("n.nvmlInit()")
        taken = samples_since(late, 0)
    assert sum(pct for _, pct in taken) * SAMPLE_US >= 0.4 * 100 * 1_000_000
    assert max(pct for _, pct in taken) == 100
    assert taken[-1][1] == 0


def test_samples_are_evenly_spaced_and_never_given_twice(nvml: Program, worker: Program) -> None:
    """A query from the last stamp returns only newer samples, and all parts make up one even series."""
    worker.send(copy_s(1.0))
    series: list[tuple[int, int]] = []
    while len(series) < 20:
        series += samples_since(nvml, series[-1][0] if series else 0)
    worker.receive()
    stamps = [stamp for stamp, _ in series]
    assert {b - a for a, b in itertools.pairwise(stamps)} == {SAMPLE_US}
    assert abs(stamps[-1] / 1e6 - time.time()) < 60
    assert all(0 <= pct <= 100 for _, pct in series)


def test_samples_of_an_idle_gpu_are_zero(nvml: Program, worker: Program) -> None:
    """A context without work leaves the GPU at 0 percent, in samples and in rates."""
    assert worker.pid in listed(nvml)
    while len(taken := samples_since(nvml, 0)) < 3:
        time.sleep(0.05)
    assert {pct for _, pct in taken} == {0}
    assert nvml("n.nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 0


def test_rates_follow_the_work(nvml: Program, worker: Program) -> None:
    """While a copy runs the rate reaches 100 and the card warms up; afterwards it falls back to 0."""
    rate = "n.nvmlDeviceGetUtilizationRates(gpu(0)).gpu"
    worker.send(copy_s(1.0))
    seen: set[int] = set()
    while 100 not in seen:
        seen.add(nvml(rate))
    worker.receive()
    while nvml(rate):
        time.sleep(0.05)
    assert nvml("n.nvmlDeviceGetTemperature(gpu(0), 0)") == 30


def test_utilisation_is_charged_to_the_process_that_worked(
    nvml: Program, worker: Program, node_file: Path
) -> None:
    """Only the process that worked is named. A query from its own stamp on returns NOT_FOUND."""
    usage = "[(p.pid, p.smUtil, p.timeStamp) for p in n.nvmlDeviceGetProcessUtilization(gpu(0), {})]"
    with Program(node_file) as other:
        start(other, 64)
        worker(copy_s(0.5))
        time.sleep(0.1)  # until the last sample of the work is complete
        ((pid, busy_pct, stamp),) = nvml(usage.format(0))
        assert pid == worker.pid
        assert 1 <= busy_pct <= 100
        while not samples_since(nvml, stamp):
            time.sleep(0.05)
        with pytest.raises(NvmlRefusedError) as refused:
            nvml(usage.format(stamp))
        assert refused.value.code == pynvml.NVML_ERROR_NOT_FOUND
    ((pid, busy_pct),) = nvml(
        "[(p.pid, p.smUtil) for p in n.nvmlDeviceGetProcessesUtilizationInfo(gpu(0), 0)]"
    )
    assert pid == worker.pid
    assert 1 <= busy_pct <= 100


def test_memory_is_busy_during_copies_alone(nvml: Program, worker: Program) -> None:
    """A kernel and then a copy take half a second each. The copy's half has memory traffic, of its process."""
    worker(f"cuda.launch(0.5); {copy_s(0.5)}")
    while not (taken := samples_since(nvml, 0)) or taken[-1][1]:
        time.sleep(0.05)
    traffic = [pct for _, pct in nvml(TRAFFIC.format(0))][: len(taken)]
    busy_s, traffic_s = (sum(pcts) * SAMPLE_US / 1e8 for pcts in ([pct for _, pct in taken], traffic))
    assert abs(busy_s - 1.0) < 0.05
    assert abs(traffic_s - 0.5) < 0.05
    assert traffic.index(max(traffic)) > 8  # the kernel came first
    stamp = taken[-1][0]
    worker.send(f"for _ in range(8): {copy_s(1.0)}")
    rates = "(lambda rates: [rates.gpu, rates.memory])(n.nvmlDeviceGetUtilizationRates(gpu(0)))"
    while nvml(rates) != [100, 100]:
        time.sleep(0.02)
    for call in ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"):
        ((pid, busy_pct, memory_pct),) = nvml(
            f"[(p.pid, p.smUtil, p.memUtil) for p in n.{call}(gpu(0), {stamp})]"
        )
        assert (pid, memory_pct) == (worker.pid, busy_pct)


def test_energy_only_grows(nvml: Program) -> None:
    """Energy is a counter in millijoules."""
    energy = "n.nvmlDeviceGetTotalEnergyConsumption(gpu(0))"
    first = nvml(energy)
    while (later := nvml(energy)) == first:
        time.sleep(0.05)
    assert later > first
