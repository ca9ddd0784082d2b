"""Every function of the driver is classified: in a new header at build time, in a new driver at run time."""

import subprocess
import sys
from pathlib import Path

import pytest

from hook.lib.classify import HEADERS, PROFILER_TYPES
from plimsoll.broker.datagrams import KIND_CONTEXT, KIND_HELLO, KIND_UNKNOWN
from tests.hook.lib.container import Container, Ear
from tests.hook.lib.program import LIBRARY, ROOT, Node, Program
from tests.servers.waiting import PATIENCE_S

NVIDIA = next(ROOT.glob(".venv/lib/python3.*/site-packages/nvidia"))
INCLUDES = [NVIDIA / "cuda_runtime/include", NVIDIA / "cu13/include"]


@pytest.fixture(name="newer")
def _newer(tmp_path: Path) -> Path:
    """A copy of CUDA 13's headers, to be changed as a newer CUDA might."""
    folder = tmp_path / "include"
    folder.mkdir()
    for name in (*HEADERS, PROFILER_TYPES):
        (folder / name).write_bytes((INCLUDES[1] / name).read_bytes())
    return folder


def classify(output: Path, *includes: Path) -> subprocess.CompletedProcess[str]:
    """Do what the build does."""
    return subprocess.run(
        [sys.executable, "-m", "hook.lib.classify", output, *includes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def _changed(folder: Path, old: str, new: str) -> None:
    header = folder / "cuda.h"
    text = header.read_text()
    assert old in text
    header.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ("CUresult CUDAAPI cuMemAllocElsewhere(CUdeviceptr *dptr, size_t bytesize);", "cuMemAllocElsewhere"),
        ("#define cuMemAlloc cuMemAlloc_v3", "cuMemAlloc_v3"),
        ("#define cuMemAllocPitch __CUDA_API_PTSZ(cuMemAllocPitch_v2)", "cuMemAllocPitch_v2_ptsz"),
    ],
)
def test_a_function_that_nobody_classified_fails_the_build(
    newer: Path, tmp_path: Path, declaration: str, name: str
) -> None:
    """A new function, version or per-thread-stream variant is named, with the remedy."""
    _changed(newer, "#ifdef __cplusplus", f"{declaration}\n#ifdef __cplusplus")
    done = classify(tmp_path / "names.h", INCLUDES[0], newer)
    assert done.returncode == 1
    assert [line.split(": ")[1].split()[0] for line in done.stderr.splitlines()] == [name]
    assert "hooks.h" in done.stderr
    assert not (tmp_path / "names.h").exists()


def test_a_name_that_no_header_declares_fails_the_build(newer: Path, tmp_path: Path) -> None:
    """A function that left the headers, or a misspelt one, fails the build."""
    _changed(newer, "cuMemCreate", "cuMemCreat")
    done = classify(tmp_path / "names.h", newer)
    assert done.returncode == 1
    assert "cuMemCreat is declared by NVIDIA" in done.stderr
    assert "cuMemCreate is in hooks.h or passes.txt and no header declares it" in done.stderr


def test_a_function_of_a_newer_driver_is_reported(
    node: Node, asker: Path, container: Container, tmp_path: Path
) -> None:
    """A look-up of a function that the library does not know succeeds, and the broker gets a message."""
    older = tmp_path / LIBRARY.name
    library = LIBRARY.read_bytes()
    assert library.count(b"\0cuDeviceGetName\0") == 1
    older.write_bytes(library.replace(b"\0cuDeviceGetName\0", b"\0cuDeviceGetNamf\0"))
    with container.ear() as ear, node.run(asker, container.environment, preload=str(older)) as program:
        program.start()
        assert _kinds(ear, 2) == [KIND_HELLO, KIND_CONTEXT]
        for look_up in ("proc cuDeviceGetName 12000 0", "where driver cuDeviceGetName"):
            assert program.words(look_up)[0] == "libcuda.so.1"
            message = ear.next()
            assert message is not None
            assert (message.kind, message.text) == (KIND_UNKNOWN, b"cuDeviceGetName")


def test_a_known_function_is_not_reported(program: Program, container: Container) -> None:
    """No message is sent for a known unhooked function, an unknown name, or another library's function."""
    with container.ear() as ear:
        for name in ("cuDeviceGetName", "cuMemAllocHost", "cuLaunchKernel", "cuNoSuchFunction", "cublasInit"):
            program.words(f"proc {name} 12000 0")
            program.words(f"where driver {name}")
        assert program.ask("retain 1") == [0]
        assert KIND_UNKNOWN not in _kinds(ear, 2)


def _kinds(ear: Ear, count: int) -> list[int]:
    messages = [ear.next() for _ in range(count)]
    return [message.kind for message in messages if message is not None]
