"""The driver as a program uses it: errors, devices, forks, looked-up functions, bad node files."""

from pathlib import Path

import pytest

from tests.emulator.cuda_program import LIBRARIES, Node
from tests.emulator.functions import functions_of
from tests.hook.lib.elf import read_library


def test_calls_out_of_order_get_the_drivers_errors(node: Node) -> None:
    """Each misuse gets the error that NVIDIA's driver documents for it."""
    seen = node.python("""
        address, count, handle, free = U64(), INT(), PTR(), SIZE()
        seen = {}
        seen["before cuInit"] = cuda.result("cuDeviceGetCount", byref(count))
        seen["cuInit flags"] = cuda.result("cuInit", 1)
        cuda.cuInit(0)
        seen["no context"] = cuda.result("cuMemAlloc_v2", byref(address), SIZE(1))
        seen["no device 2"] = cuda.result("cuDeviceGet", byref(count), 2)
        seen["null"] = cuda.result("cuDeviceGetCount", None)
        context = PTR()
        cuda.cuCtxCreate_v2(byref(context), 0, 0)
        seen["zero bytes"] = cuda.result("cuMemAlloc_v2", byref(address), SIZE(0))
        seen["too many bytes"] = cuda.result("cuMemAlloc_v2", byref(address), SIZE(1 << 60))
        seen["foreign pointer"] = cuda.result("cuMemFree_v2", U64(4096))
        seen["free of null"] = cuda.result("cuMemFree_v2", U64(0))
        seen["stale stream"] = cuda.result("cuStreamQuery", PTR(4096))
        seen["bad event"] = cuda.result("cuEventQuery", PTR(4096))
        seen["bad function"] = cuda.result("cuLaunchKernel", PTR(4096), 1, 1, 1, 1, 1, 1, 0, None, None, None)
        kernel = cuda.kernel(b"other")
        seen["no grid"] = cuda.result("cuLaunchKernel", kernel, 0, 1, 1, 1, 1, 1, 0, None, None, None)
        seen["block"] = cuda.result("cuLaunchKernel", kernel, 1, 1, 1, 1025, 1, 1, 0, None, None, None)
        ptx = c_char_p(b".version 6.0\\n.visible .entry there(){ret;}")
        module = cuda.make("cuModuleLoadData", ptx)
        seen["in ptx"] = cuda.result("cuModuleGetFunction", byref(handle), module, b"there")
        seen["not in ptx"] = cuda.result("cuModuleGetFunction", byref(handle), module, b"here")
        other = cuda.alloc(4096)
        seen["past the end"] = cuda.result("cuMemsetD8_v2", other, 1, SIZE(4097))
        cuda.cuCtxDestroy_v2(context)
        cuda.cuCtxCreate_v2(byref(context), 0, 0)
        seen["freed with its context"] = cuda.result("cuMemFree_v2", other)
        show(seen)
    """)
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
    seen = node.python("""
        cuda.context(); address = cuda.alloc(64 * MIB); count = INT()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            results = [cuda.raw("cuInit", 0), cuda.raw("cuDeviceGetCount", byref(count))]
            os.write(writer, json.dumps(results).encode()); os._exit(0)
        os.waitpid(child, 0)
        free = cuda.info()[0]
        show([json.loads(os.read(reader, 100)), cuda.result("cuMemFree_v2", address), 8 * GIB - free])
    """)
    assert seen == [[3, 3], "CUDA_SUCCESS", 364 << 20]


def test_a_child_forked_before_the_start_is_a_process_of_its_own(node: Node) -> None:
    """A process whose parent never initialised the driver initialises it as any process does."""
    seen = node.python("""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            cuda.context(); cuda.alloc(64 * MIB)
            os.write(writer, json.dumps(cuda.info()[0]).encode()); os._exit(0)
        os.waitpid(child, 0)
        cuda.context()
        show([8 * GIB - json.loads(os.read(reader, 100)), 8 * GIB - cuda.info()[0]])
    """)
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
        """
        result, count, names = cuda.result("cuInit", 0), INT(), []
        if result == "CUDA_SUCCESS":
            cuda.cuDeviceGetCount(byref(count))
            for device in range(count.value):
                uuid = (c_char * 16)()
                cuda.cuDeviceGetUuid_v2(uuid, device)
                names.append("GPU-" + uuid.raw[:4].hex())
        show(names or result)
        """,
        CUDA_VISIBLE_DEVICES=visible,
    )
    assert seen == names


def test_functions_are_found_by_version_and_default_stream(node: Node) -> None:
    """`cuGetProcAddress` returns the symbol of a name for a version, and for per-thread default streams."""
    seen = node.python("""
        def find(name, version, flags=0):
            address, status = PTR(), INT(-1)
            code = library.cuGetProcAddress_v2(name.encode(), byref(address), version, U64(flags), byref(status))
            symbols = [s for s in SYMBOLS if ctypes.cast(getattr(library, s), PTR).value == address.value]
            return [code, symbols[0] if symbols else None, status.value]
        SYMBOLS = ["cuMemAlloc", "cuMemAlloc_v2", "cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4",
                   "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds",
                   "cuGetProcAddress", "cuGetProcAddress_v2", "cuInit"]
        address = PTR()
        show([find("cuMemAlloc", 2000), find("cuMemAlloc", 12080), find("cuCtxCreate", 11030),
              find("cuCtxCreate", 11040), find("cuCtxCreate", 12050), find("cuLaunchKernel", 12080),
              find("cuLaunchKernel", 12080, 2), find("cuLaunchKernel", 6050, 2), find("cuMemcpyHtoD", 12080, 2),
              find("cuGetProcAddress", 11030), find("cuGetProcAddress", 12000), find("cuInit", 12080, 2),
              find("cuLaunchKernelEx", 11050), find("cuNothing", 12080),
              cuda.result("cuGetProcAddress", b"cuNothing", byref(address), 12080, U64(0)),
              cuda.result("cuGetProcAddress", b"cuInit", byref(address), 12080, U64(64))])
    """)
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
    seen = node.python("""
        address = PTR()
        def answer(flags):
            cuda.cuGetProcAddress(b"cuStreamGetAttribute", byref(address), 12080, U64(flags))
            return ctypes.CFUNCTYPE(INT, PTR, INT, PTR)(address.value)(None, 1, None)
        cuda.context()
        show([answer(1), answer(2)])
    """)
    assert seen == [801, 801]


def test_per_thread_functions_use_the_threads_own_stream(node: Node) -> None:
    """Stream 0 of `_ptsz` functions is the calling thread's stream, which does not wait for another thread's."""
    seen = node.python("""
        context = cuda.context(); kernel = cuda.kernel()
        length = U64(400_000_000); params = (PTR * 1)(ctypes.addressof(length))
        cuda.cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None)
        results = []
        def other():
            cuda.cuCtxSetCurrent(context)
            results.append(cuda.result("cuStreamQuery_ptsz", None))
        thread = threading.Thread(target=other); thread.start(); thread.join()
        own = cuda.result("cuStreamQuery_ptsz", None)
        cuda.cuStreamSynchronize_ptsz(None)
        show(results + [own, cuda.result("cuStreamQuery_ptsz", None)])
    """)
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
