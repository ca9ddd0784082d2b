"""The breadth of the API: arrays, boxes, all ways to launch, libraries, pointers, host memory."""

from tests.emulator.cuda_program import MIB, Node


def test_arrays_hold_and_cost_what_they_should(node: Node) -> None:
    """An array is charged and keeps each row that is copied into it; a mipmap costs all its levels."""
    seen = node.python("""
        class Form(ctypes.Structure):
            _fields_ = [("width", SIZE), ("height", SIZE), ("depth", SIZE), ("format", INT), ("channels", UINT),
                        ("flags", UINT)]
        class Copy(ctypes.Structure):
            _fields_ = [("sx", SIZE), ("sy", SIZE), ("stype", INT), ("shost", PTR), ("sdev", U64), ("sarray", PTR),
                        ("spitch", SIZE), ("dx", SIZE), ("dy", SIZE), ("dtype", INT), ("dhost", PTR), ("ddev", U64),
                        ("darray", PTR), ("dpitch", SIZE), ("width", SIZE), ("height", SIZE)]
        cuda.context()
        full = cuda.info()[0]
        form = Form(1024, 1024, 0, 0x20, 1, 0)
        array = cuda.make("cuArray3DCreate_v2", byref(form))
        spent = full - cuda.info()[0]
        source = ctypes.create_string_buffer(bytes(range(200)), 200)
        target = ctypes.create_string_buffer(200)
        there = Copy(stype=1, shost=ctypes.addressof(source), spitch=20, dtype=3, darray=array.value, dx=8, dy=2,
                     width=20, height=10)
        back = Copy(stype=3, sarray=array.value, sx=8, sy=2, dtype=1, dhost=ctypes.addressof(target), dpitch=20,
                    width=20, height=10)
        cuda.cuMemcpy2D_v2(byref(there)); cuda.cuMemcpy2D_v2(byref(back))
        outside = Copy(stype=1, shost=ctypes.addressof(source), dtype=3, darray=array.value, dy=1020, width=20,
                       height=10)
        error = cuda.result("cuMemcpy2D_v2", byref(outside))
        mipmap = cuda.make("cuMipmappedArrayCreate", byref(form), 2)
        both = full - cuda.info()[0]
        cuda.cuMipmappedArrayDestroy(mipmap); cuda.cuArrayDestroy(array)
        show([spent, source.raw == target.raw, error, both, full - cuda.info()[0]])
    """)
    assert seen == [4 * MIB, True, "CUDA_ERROR_INVALID_VALUE", 10 * MIB, 0]


def test_every_launch_counts(node: Node) -> None:
    """Plain, extended, cooperative and multi-device launches, kernels of libraries, and graphs all count."""
    node.python("""
        class Config(ctypes.Structure):
            _fields_ = [("shape", UINT * 6), ("shared", UINT), ("stream", PTR), ("attrs", PTR), ("count", UINT)]
        class Launch(ctypes.Structure):
            _fields_ = [("function", PTR), ("shape", UINT * 6), ("shared", UINT), ("stream", PTR), ("params", PTR)]
        cuda.context(); kernel = cuda.kernel()
        length = U64(1_000_000); params = (PTR * 1)(ctypes.addressof(length))
        one = (UINT * 6)(1, 1, 1, 1, 1, 1)
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None)
        cuda.cuLaunchKernelEx(byref(Config(one)), kernel, params, None)
        cuda.cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, params)
        launches = (Launch * 2)(*[Launch(kernel, one, 0, None, ctypes.addressof(params))] * 2)
        cuda.cuLaunchCooperativeKernelMultiDevice(launches, 2, 0)
        loaded = PTR()
        cuda.cuLibraryLoadData(byref(loaded), b"any image", None, None, 0, None, None, 0)
        of_library = cuda.make("cuLibraryGetKernel", loaded, b"busy")
        function = cuda.make("cuKernelGetFunction", of_library)
        cuda.cuLaunchKernel(of_library, 1, 1, 1, 1, 1, 1, 0, None, params, None)
        cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, params, None)
        size = SIZE(8)
        extra = (PTR * 5)(1, ctypes.addressof(length), 2, ctypes.addressof(size), 0)
        cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, extra)
        cuda.cuCtxSynchronize()
        os.system("exec " + os.environ["BOOK"] + " > " + os.environ["SEEN"])
        show(1)
    """, BOOK=str(node.tool), SEEN=str(node.config.with_name("seen")))  # fmt: skip
    process = node.book_from(node.config.with_name("seen"))[0]["processes"][0]
    assert process["launches"] == 8
    assert process["busy_ns"] == 8_000_000


def test_pointers_tell_what_they_are(node: Node) -> None:
    """The driver knows device, managed, pooled, page-locked and foreign memory apart."""
    seen = node.python("""
        cuda.context()
        device, managed, host, pooled = cuda.alloc(100), U64(), PTR(), U64()
        cuda.cuMemAllocManaged(byref(managed), SIZE(100), 1)
        cuda.cuMemHostAlloc(byref(host), SIZE(100), 2)
        cuda.cuMemAllocAsync(byref(pooled), SIZE(100), None)
        own = ctypes.create_string_buffer(100)
        cuda.cuMemHostRegister_v2(own, SIZE(100), 0)
        def describe(address):
            kind, is_managed, start = INT(-1), ctypes.c_bool(), U64()
            keys = (INT * 3)(2, 8, 11)
            values = (PTR * 3)(ctypes.addressof(kind), ctypes.addressof(is_managed), ctypes.addressof(start))
            cuda.cuPointerGetAttributes(3, keys, values, U64(address))
            return [kind.value, is_managed.value, start.value and address - start.value]
        base, size = U64(), SIZE()
        cuda.cuMemGetAddressRange_v2(byref(base), byref(size), U64(device.value + 50))
        twice = cuda.result("cuMemHostRegister_v2", own, SIZE(100), 0)
        known = [describe(device.value + 7), describe(managed.value), describe(host.value), describe(pooled.value),
                 describe(ctypes.addressof(own)), describe(64)]
        cuda.cuMemFreeHost(host); cuda.cuMemHostUnregister(own)
        show([known, base.value == device.value, size.value, twice])
    """)
    assert seen == [
        [[2, False, 7], [2, True, 0], [1, False, 0], [2, False, 0], [1, False, 0], [0, False, 0]],
        True,
        100,
        "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
    ]


def test_a_lost_gpu_answers_with_an_error(node: Node) -> None:
    """After a GPU fell off the bus its contexts fail, and another GPU's contexts go on."""
    seen = node.python("""
        context = cuda.context(); cuda.alloc(100)
        os.system("exec " + os.environ["BOOK"] + " lose 0")
        lost = cuda.result("cuCtxSynchronize")
        cuda.context(1)
        other = cuda.result("cuCtxSynchronize")
        cuda.cuCtxSetCurrent(context)
        os.system("exec " + os.environ["BOOK"] + " find 0")
        show([lost, other, cuda.result("cuCtxSynchronize")])
    """, BOOK=str(node.tool))  # fmt: skip
    assert seen == ["CUDA_ERROR_UNKNOWN", "CUDA_SUCCESS", "CUDA_SUCCESS"]


def test_clearing_gigabytes_costs_no_ram(node: Node) -> None:
    """Device memory that holds only zeros is not backed by the host's, however large."""
    resident_bytes = node.python("""
        cuda.context()
        address, word = cuda.alloc(6 * GIB), UINT(1)
        cuda.cuMemsetD32_v2(U64(address.value + 4096), 5, SIZE(1))
        cuda.cuMemsetD8_v2(address, 0, SIZE(6 * GIB))
        cuda.cuMemcpyDtoH_v2(byref(word), U64(address.value + 4096), SIZE(4))
        assert word.value == 0
        show(int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE"))
    """)
    assert resident_bytes < 512 * MIB
