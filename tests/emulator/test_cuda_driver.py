"""The driver as a program uses it: errors, devices, forks, looked-up functions, bad node files."""

from pathlib import Path

import pytest

from tests.emulator.cuda_program import LIBRARIES, Node
from tests.emulator.functions import functions_of
from tests.hook.lib.elf import read_library


def test_calls_out_of_order_get_the_drivers_errors(node: Node) -> None:
    """Each misuse gets the error that NVIDIA's driver documents for it."""
    seen = node.python("driver.misuse")
    assert seen == {
        "before cuInit": "CUDA_ERROR_NOT_INITIALIZED",
        "cuInit flags": "CUDA_ERROR_INVALID_VALUE",
        "no context": "CUDA_ERROR_INVALID_CONTEXT",
        "no device 2": "CUDA_ERROR_INVALID_DEVICE",
        "null": "CUDA_ERROR_INVALID_VALUE",
        "zero bytes": "CUDA_ERROR_INVALID_VALUE",
        "too many bytes": "CUDA_ERROR_OUT_OF_MEMORY",
        "foreign pointer": "CUDA_ERROR_INVALID_VALUE",
        "free of null": "CUDA_SUCCESS",
        "stale stream": "CUDA_ERROR_INVALID_HANDLE",
        "bad event": "CUDA_ERROR_INVALID_HANDLE",
        "bad function": "CUDA_ERROR_INVALID_HANDLE",
        "no grid": "CUDA_ERROR_INVALID_VALUE",
        "block": "CUDA_ERROR_INVALID_VALUE",
        "in ptx": "CUDA_SUCCESS",
        "not in ptx": "CUDA_ERROR_NOT_FOUND",
        "past the end": "CUDA_ERROR_INVALID_VALUE",
        "freed with its context": "CUDA_ERROR_INVALID_VALUE",
    }


def test_a_forked_child_finds_the_driver_uninitialised(node: Node) -> None:
    """After a fork the child gets NOT_INITIALIZED and owns nothing, and the parent goes on."""
    seen = node.python("driver.fork_after_init")
    assert seen == [[3, 3], "CUDA_SUCCESS", 364 << 20]


def test_a_child_forked_before_the_start_is_a_process_of_its_own(node: Node) -> None:
    """A process whose parent never initialised the driver initialises it as any process does."""
    seen = node.python("driver.fork_before_init")
    assert seen == [364 << 20, 300 << 20]


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["GPU-6b1c0d2e"]),
        ("1,0", ["GPU-6b1c0d2e", "GPU-5a1c0d2e"]),
        ("GPU-6b1c0d2e-0000-0000-0000-000000000002", ["GPU-6b1c0d2e"]),
        ("GPU-6b,0", ["GPU-6b1c0d2e", "GPU-5a1c0d2e"]),
        ("0,7,1", ["GPU-5a1c0d2e"]),
        ("", "CUDA_ERROR_NO_DEVICE"),
        ("none", "CUDA_ERROR_NO_DEVICE"),
    ],
)
def test_visible_devices_are_chosen_and_ordered(node: Node, visible: str, names: list[str] | str) -> None:
    """CUDA_VISIBLE_DEVICES takes indices, uuids and their prefixes, and ends at the first that is neither."""
    seen = node.python(
        "driver.visible_devices",
        CUDA_VISIBLE_DEVICES=visible,
    )
    assert seen == names


def test_functions_are_found_by_version_and_default_stream(node: Node) -> None:
    """`cuGetProcAddress` returns the symbol of a name for a version, and for per-thread default streams."""
    seen = node.python("driver.find_functions")
    assert seen == [
        [0, "cuMemAlloc", 0],
        [0, "cuMemAlloc_v2", 0],
        [0, "cuCtxCreate_v2", 0],
        [0, "cuCtxCreate_v3", 0],
        [0, "cuCtxCreate_v4", 0],
        [0, "cuLaunchKernel", 0],
        [0, "cuLaunchKernel_ptsz", 0],
        [0, "cuLaunchKernel", 0],
        [0, "cuMemcpyHtoD_v2_ptds", 0],
        [0, "cuGetProcAddress", 0],
        [0, "cuGetProcAddress_v2", 0],
        [0, "cuInit", 0],
        [0, None, 2],
        [0, None, 1],
        "CUDA_ERROR_NOT_FOUND",
        "CUDA_ERROR_INVALID_VALUE",
    ]


def test_an_unsupported_function_is_found_and_refuses(node: Node) -> None:
    """A function of unsupported.def has an address for each default stream, and says that it is not supported."""
    seen = node.python("driver.call_unsupported")
    assert seen == [801, 801, True]


def test_per_thread_functions_use_the_threads_own_stream(node: Node) -> None:
    """Stream 0 of `_ptsz` functions is the calling thread's stream, which does not wait for another thread's."""
    seen = node.python("driver.per_thread_stream")
    assert seen == ["CUDA_SUCCESS", "CUDA_ERROR_NOT_READY", "CUDA_SUCCESS"]


@pytest.mark.parametrize(
    ("text", "line", "field", "value"),
    [
        ("[gpu 0]\nmemory = -1\n", 2, "memory", "-1"),
        ("[gpu 0]\nmemory = 24Qi\n", 2, "memory", "24Qi"),
        ("[gpu 0]\n\nuuid = GPU-1\n", 3, "uuid", "GPU-1"),
        ("[gpu 0]\ncompute = 8\n", 2, "compute", "8"),
        ("[gpu 0]\ncolour = red\n", 2, "colour", "red"),
        ("driver = new\n[gpu 0]\n", 1, "driver", "new"),
        ("[gpu 0]\n[gpu 1]\n[link 0 1]\npath = NV99\n", 4, "path", "NV99"),
        ("[gpu 0]\n[link 0 3]\n", 2, "section", "[link 0 3]"),
        ("[gpu 0]\n[gpu 2]\n", 2, "section", "[gpu 2]"),
        ("[gpu 1]\n", 1, "section", "(none)"),
        ("# nothing\n", 1, "section", "(none)"),
        ("[gpu 0]\nmemory = 1Gi\nreserved = 1Gi\n", 3, "reserved", "(plus context)"),
        ("[gpu 0]\n[gpu 1]\npci = 0000:17:00.0\n", 3, "pci", "(twice)"),
        ("[gpu 0]\njust words\n", 2, "line", "just words"),
    ],
)
def test_a_bad_node_file_is_refused_with_its_line(
    node: Node, text: str, line: int, field: str, value: str
) -> None:
    """`cuInit` fails with SYSTEM_NOT_READY; one line names file, line, field, value and remedy."""
    node.config.write_text(text)
    with node.start() as program:
        out, err = program.communicate()
    assert '"CUDA_ERROR_SYSTEM_NOT_READY"' in out
    start = f"plimsoll emulator: {node.config}:{line}: {field} = '{value}': "
    assert err.startswith(start)
    assert len(err.removeprefix(start).strip()) > 10
    assert err.count("\n") == 1


def test_a_missing_node_file_is_refused(node: Node) -> None:
    """Without a readable node file there is no driver, and the message names the variable for it."""
    node.config.unlink()
    with node.start() as program:
        out, err = program.communicate()
    assert '"CUDA_ERROR_SYSTEM_NOT_READY"' in out
    assert f"PLIMSOLL_EMULATOR = '{node.config}'" in err


def test_a_changed_node_file_is_not_mixed_with_old_state(node: Node) -> None:
    """A book made for another node is refused, with the file to remove."""
    assert node.busy("--memory", "1Mi")[0] == 0
    node.config.write_text("[gpu 0]\nmemory = 16Gi\n")
    with node.start() as program:
        out, err = program.communicate()
    assert '"CUDA_ERROR_SYSTEM_NOT_READY"' in out
    assert f"{node.config}.state: node: the node file has changed" in err


def test_three_lines_describe_a_node(node: Node) -> None:
    """Everything but the GPU itself has a default."""
    node.config.write_text("[gpu 0]\nmemory = 1Gi\n")
    assert node.busy("--memory", "512Mi")[0] == 0


def test_many_processes_may_start_at_once(node: Node) -> None:
    """The first process creates the book, and no process sees half of it."""
    starters = [node.start("--memory", "10Mi") for _ in range(16)]
    for starter in starters:
        starter.communicate()
        assert starter.returncode == 0


def test_the_library_exports_the_api_and_nothing_else() -> None:
    """Only cu* functions leave the library; it calls none of its own through them, and needs glibc 2.17."""
    library = read_library(LIBRARIES / "libcuda.so.1")
    assert len(library.defined) > 350
    assert all(name.startswith(("cu", "plimsoll_emulator_private_")) for name in library.defined)
    assert not library.bound & library.defined
    assert library.newest_glibc <= (2, 17)


def test_every_listed_function_is_exported() -> None:
    """`dlsym` finds each function that cuGetProcAddress finds, as in NVIDIA's library."""
    listed = {row.symbol for table in ("functions", "unsupported") for row in functions_of(table)}
    assert len(listed) > 350
    assert listed <= read_library(LIBRARIES / "libcuda.so.1").defined


def test_the_state_file_is_open_to_all_users(node: Node) -> None:
    """Any process can write the book whichever user created it, as pods of one node run under many users."""
    assert node.busy("--memory", "1Mi")[0] == 0
    assert Path(f"{node.config}.state").stat().st_mode & 0o777 == 0o666
