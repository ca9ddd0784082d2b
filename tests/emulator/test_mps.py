"""NVIDIA's Multi-Process Service, as NVML and CUDA show it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.nvml_program import LIBRARIES, MIB, Program, environment

TERMINATED = 810
"""CUDA_ERROR_MPS_CLIENT_TERMINATED."""


@pytest.fixture
def server(
    node_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[str]]:
    """A server whose clients are all programs that begin now."""
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(pipe))
    with subprocess.Popen(
        [LIBRARIES / "nvidia-cuda-mps-server"], env=environment(node_file), stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "serving\n"
        yield started
        started.kill()


def listed(program: Program, kind: str, gpu: int = 0) -> dict[int, int]:
    """A list of processes: MiB by pid."""
    code = (
        f"[[p.pid, p.usedGpuMemory // {MIB}] for p in n.nvmlDeviceGet{kind}RunningProcesses_v3(gpu({gpu}))]"
    )
    return dict(program(code))


def test_clients_have_a_list_of_their_own(
    node_file: Path, server: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is a compute process of each card; its clients are listed as such, and by themselves."""
    with Program(node_file) as client:
        client("n.nvmlInit(); c = Cuda(); c.open(0)")
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")
        with Program(node_file) as other:
            other("n.nvmlInit(); c = Cuda(); c.open(0)")
            assert listed(other, "MPSCompute") == {client.pid: 300}
            assert listed(other, "Compute") == {server.pid: 28, other.pid: 300}
            assert listed(other, "Compute", 2) == {server.pid: 28}
            assert listed(other, "Graphics") == {}


def test_the_end_of_the_server_is_the_end_of_its_clients(
    node_file: Path, server: subprocess.Popen[str]
) -> None:
    """The memory is free at once, and the client's next call names the reason."""
    with Program(node_file) as client:
        client("n.nvmlInit(); c = Cuda(); c.open(0)")
        server.kill()
        server.wait()
        assert client("n.nvmlDeviceGetMemoryInfo(gpu(0), version=n.nvmlMemory_v2).used") == 0
        assert listed(client, "MPSCompute") == {}
        assert client("c.driver.cuCtxSynchronize()") == TERMINATED
        assert client("c.driver.cuInit(0)") == 0
        os.kill(client.pid, 0)


def test_a_later_process_in_the_servers_slot_is_not_the_server(
    node_file: Path, server: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process of the node may take the place of the dead server in the book; the clients stay ended."""
    with Program(node_file) as client:
        client("n.nvmlInit(); c = Cuda(); c.open(0)")
        server.kill()
        server.wait()
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")
        with Program(node_file) as next_one:
            next_one("n.nvmlInit(); c = Cuda(); c.open(0)")
            assert listed(next_one, "MPSCompute") == {}
            assert listed(next_one, "Compute") == {next_one.pid: 300}
            assert client("c.driver.cuCtxSynchronize()") == TERMINATED
