"""Each way to look up a function of the driver finds the hook if there is one, and the driver's otherwise."""

import subprocess
from pathlib import Path

import pytest

from tests.hook.lib.container import Container
from tests.hook.lib.elf import read_library
from tests.hook.lib.program import LIBRARY, MIB, OUT_OF_MEMORY, SUCCESS, Node, Program, compiled
from tests.servers.waiting import PATIENCE_S

HOOK, DRIVER = LIBRARY.name, "libcuda.so.1"
PER_THREAD = 2  # CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM


def test_every_name_of_the_table_is_answered_by_its_hook(program: Program) -> None:
    """Dlsym on the opened driver finds the wrapper of every exported hook that the driver has."""
    cuda = [name for name in read_library(LIBRARY).defined if name.startswith("cu")]
    assert len(cuda) > 40
    for name in cuda:
        assert program.words(f"where driver {name}") in ([HOOK, name], ["none", "none"])


def test_dlsym_keeps_the_meaning_of_each_scope(program: Program) -> None:
    """Hooks are found through every scope that leads to the driver, and other names where they are defined."""
    for scope in ("driver", "default", "next", "itself"):
        assert program.words(f"where {scope} cuMemAlloc_v2") == [HOOK, "cuMemAlloc_v2"]
    assert program.words("where driver cuDeviceGetCount")[0] == DRIVER
    assert program.words("where default getpid")[0].startswith("libc.so")
    assert program.words("where next getpid")[0].startswith("libc.so")
    assert program.words("where driver cuNoSuchFunction") == ["none", "none"]
    assert program.words("versioned cuMemAlloc_v2") == ["none", "none"]


def test_a_missing_driver_stays_missing(node: Node, asker: Path, container: Container) -> None:
    """Before a driver is loaded its functions are not found, and dlerror says why."""
    with node.run(asker, container.environment) as program:
        assert program.words("dlerror cuInit")[0] == "0"
        assert "undefined symbol: cuInit" in " ".join(program.words("dlerror cuInit"))
        assert program.words("where next cuInit") == ["none", "none"]
        assert program.ask("load") == [0]
        assert program.words("where default cuInit") == [HOOK, "cuInit"]


@pytest.mark.parametrize("program_name", ["marked", "marked-new"])
@pytest.mark.parametrize("is_hooked", [True, False])
def test_rtld_next_stays_relative_to_its_caller(node: Node, program_name: str, *, is_hooked: bool) -> None:
    """A library that looks for the next definition of a name finds the one after itself, as without the preload."""
    preload = [str(LIBRARY)] if is_hooked else []
    preload += [str(compiled("upper.so")), str(compiled("lower.so"))]
    environment = node.environment(preload=":".join(preload))
    done = subprocess.run(
        [compiled(program_name)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.split() == ["upper", "lower", "end"]


@pytest.mark.parametrize("is_first", [True, False])
def test_it_works_beside_another_preload_that_hooks_dlsym(
    node: Node, asker: Path, container: Container, *, is_first: bool
) -> None:
    """Before or behind another hook of dlsym the limits hold, and that hook still gets all other look-ups."""
    both = [str(LIBRARY), str(compiled("dlsym.so"))]
    preload = ":".join(both if is_first else both[::-1])
    environment = node.environment(container.environment, {"LAYER_LOG": "1"}, preload=preload)
    with Program(asker, environment, container.limits_dir / "errors") as program:
        program.start()
        assert program.alloc(1024)[0] == OUT_OF_MEMORY
        assert program.alloc(64)[0] == SUCCESS
        assert container.used_bytes() == 128 * MIB
        assert program.words("where driver cuDeviceGetCount")[0] == DRIVER
        assert "layer: cuDeviceGetCount" in program.errors()


def test_two_copies_of_the_library_do_not_loop(
    node: Node, asker: Path, container: Container, tmp_path: Path
) -> None:
    """Two copies of the library under two names neither recurse nor let a program past the line."""
    copy = tmp_path / "copy.so"
    copy.write_bytes(LIBRARY.read_bytes())
    with node.run(asker, container.environment, preload=f"{LIBRARY}:{copy}") as program:
        program.start()
        assert program.alloc(1024)[0] == OUT_OF_MEMORY
        assert program.alloc(64)[0] == SUCCESS
