"""Programs of another libc, musl, start with the library and are held, where a driver runs at all."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.hook.lib.container import Container
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node, compiled
from tests.servers.debian import MissingPackageError, debian_file


@pytest.fixture(name="musl", scope="module")
def _musl(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The loader of musl, and a folder in which it finds itself for glibc's, of which the driver needs a function."""
    machine = os.uname().machine
    try:
        loader = debian_file("musl", f"lib/ld-musl-{machine}.so.1").resolve()
    except MissingPackageError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("musl")
    for name in ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"):
        (folder / name).symlink_to(loader)
    return loader, folder


@pytest.mark.parametrize("program", ["plain", "linked"])
def test_a_program_of_musl_starts_and_is_held(
    node: Node, container: Container, musl: tuple[Path, Path], program: str
) -> None:
    """With a library that needs a name of glibc's alone, musl would start no program. One with CUDA gets its line."""
    loader, folder = musl
    environment = node.environment(container.environment)
    environment["LD_LIBRARY_PATH"] = f"{environment['LD_LIBRARY_PATH']}:{folder}"
    done = subprocess.run(
        [loader, compiled(program), "libplimsoll"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if program == "plain":
        assert int(done.stdout.split()[0]) > 0
    else:
        *results, _, total_bytes = map(int, done.stdout.split())
        assert results == [SUCCESS, SUCCESS, SUCCESS, SUCCESS, OUT_OF_MEMORY, SUCCESS]
        assert total_bytes == 320 * MIB
