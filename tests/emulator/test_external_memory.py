"""External memory by descriptor, and arrays that get their memory after their creation."""

from tests.emulator.cuda_program import MIB, Node

PROGRAM = """
class Location(ctypes.Structure):
    _fields_ = [("where", INT), ("id", INT)]
class Props(ctypes.Structure):
    _fields_ = [("type", INT), ("handles", INT), ("location", Location), ("meta", PTR),
                ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort), ("rest", UINT)]
class Handle(ctypes.Structure):
    _fields_ = [("type", INT), ("gap", INT), ("fd", INT), ("gap2", INT), ("other", PTR), ("size", U64),
                ("flags", UINT), ("reserved", UINT * 17)]
class Buffer(ctypes.Structure):
    _fields_ = [("offset", U64), ("size", U64), ("flags", UINT), ("reserved", UINT * 17)]
class Form(ctypes.Structure):
    _fields_ = [("width", SIZE), ("height", SIZE), ("depth", SIZE), ("format", INT),
                ("channels", UINT), ("flags", UINT)]
class Levels(ctypes.Structure):
    _fields_ = [("offset", U64), ("form", Form), ("levels", UINT), ("reserved", UINT * 16)]
class Map(ctypes.Structure):
    _fields_ = [("kind", INT), ("resource", PTR), ("place", INT), ("where", U64 * 4), ("operation", INT),
                ("handle_type", INT), ("handle", U64), ("offset", U64), ("devices", UINT), ("flags", UINT),
                ("reserved", UINT * 2)]
def create(size, usage=0):
    handle = U64()
    cuda.cuMemCreate(byref(handle), SIZE(size), byref(Props(1, 1, Location(1, 0), None, 0, 0, usage)), U64(0))
    return handle
def export(handle):
    fd = INT(-1)
    cuda.cuMemExportToShareableHandle(byref(fd), handle, 1, U64(0))
    return fd.value
def bring(fd, size, kind=1):
    return Handle(kind, 0, fd, 0, None, size)
cuda.context()
full = cuda.info()[0]
def held(): return (full - cuda.info()[0]) // MIB
"""


def test_external_memory_is_paid_once_and_outlives_its_handle(node: Node) -> None:
    """A buffer in external memory shows the same bytes, and holds the memory after handle and import are gone."""
    seen = node.python(
        PROGRAM
        + """
handle = create(64 * MIB); fd = export(handle)
memory = cuda.make("cuImportExternalMemory", byref(bring(fd, 64 * MIB)))
buffer, same, back = U64(), U64(), (ctypes.c_ubyte * 1)()
cuda.cuExternalMemoryGetMappedBuffer(byref(buffer), memory, byref(Buffer(MIB, 2 * MIB)))
cuda.cuExternalMemoryGetMappedBuffer(byref(same), memory, byref(Buffer(2 * MIB, MIB)))
cuda.cuMemsetD8_v2(buffer, 8, SIZE(2 * MIB)); cuda.cuMemcpyDtoH_v2(back, same, SIZE(1))
past = cuda.result("cuExternalMemoryGetMappedBuffer", byref(U64()), memory, byref(Buffer(63 * MIB, 2 * MIB)))
seen = [back[0], past, held(), os.path.exists(f"/proc/self/fd/{fd}")]
cuda.cuMemRelease(handle); cuda.cuDestroyExternalMemory(memory); cuda.cuMemFree_v2(same)
seen.append(held())
cuda.cuMemFree_v2(buffer)
show([*seen, held()])
"""
    )
    assert seen == [8, "CUDA_ERROR_INVALID_VALUE", 64, False, 64, 0]


def test_a_mipmapped_array_lies_in_external_memory(node: Node) -> None:
    """A mipmapped array's levels are the same memory, which goes with the array."""
    seen = node.python(
        PROGRAM
        + """
handle = create(16 * MIB)
memory = cuda.make("cuImportExternalMemory", byref(bring(export(handle), 16 * MIB)))
form = Form(1024, 1024, 0, 0x20, 1)
mipmap = cuda.make("cuExternalMemoryGetMappedMipmappedArray", memory, byref(Levels(0, form, 3)))
large = cuda.result("cuExternalMemoryGetMappedMipmappedArray", byref(PTR()), memory,
                    byref(Levels(0, Form(4096, 4096, 0, 0x20, 1), 1)))
cuda.cuMemRelease(handle); cuda.cuDestroyExternalMemory(memory)
level = PTR()
cuda.cuMipmappedArrayGetLevel(byref(level), mipmap, 2)
seen = [large, held()]
cuda.cuMipmappedArrayDestroy(mipmap)
show([*seen, held()])
"""
    )
    assert seen == ["CUDA_ERROR_INVALID_VALUE", 16, 0]


def test_external_memory_must_be_this_nodes_and_large_enough(node: Node) -> None:
    """A foreign file, another type of handle, or too large a size is refused, and the descriptor stays open."""
    seen = node.python(
        PROGRAM
        + """
fd = export(create(2 * MIB))
tries = [bring(0, MIB), bring(fd, MIB, 9), bring(fd, 3 * MIB), bring(fd, 0)]
show([*[cuda.result("cuImportExternalMemory", byref(PTR()), byref(one)) for one in tries],
      os.path.exists(f"/proc/self/fd/{fd}")])
"""
    )
    invalid = "CUDA_ERROR_INVALID_VALUE"
    assert seen == [invalid, "CUDA_ERROR_NOT_SUPPORTED", invalid, invalid, True]


def test_sparse_and_deferred_arrays_hold_what_is_mapped_into_them(node: Node) -> None:
    """A new array of these kinds costs nothing.

    A mapping keeps the handle's memory until it, the array or the context goes.
    """
    seen = node.python(
        PROGRAM
        + """
def array(flags):
    return cuda.make("cuArray3DCreate_v2", byref(Form(4096, 4096, 0, 0x20, 1, flags)))
def element(array, handle, where=0, operation=1):
    return Map(0, array, 0, (U64 * 4)(0, where), operation, 0, handle, 0, 1)
sparse, deferred, plain = array(0x40), array(0x80), cuda.make("cuArray3DCreate_v2", byref(Form(64, 64, 0, 0x20, 1)))
seen = [held()]
tiles, whole = create(2 * MIB, 1), create(64 * MIB)
def go(*elements):
    return cuda.result("cuMemMapArrayAsync", (Map * len(elements))(*elements), len(elements), None)
seen += [go(element(sparse, whole)), go(element(plain, tiles))]
seen += [go(element(sparse, tiles), element(deferred, whole)), held()]
cuda.cuMemRelease(tiles); cuda.cuMemRelease(whole)
seen.append(held())
seen += [go(element(sparse, 0, 1, 2)), held(), go(element(sparse, 0, 0, 2)), held()]
cuda.cuArrayDestroy(deferred); seen.append(held())
again = create(64 * MIB)
go(element(array(0x80), again)); cuda.cuMemRelease(again)
cuda.cuDevicePrimaryCtxReset_v2(0); cuda.context()
show([*seen, held()])
"""
    )
    invalid, fine = "CUDA_ERROR_INVALID_VALUE", "CUDA_SUCCESS"
    small = 2  # the plain array's block
    assert seen[:3] == [small, invalid, invalid]
    assert seen[3:6] == [fine, small + 66, small + 66]
    assert seen[6:10] == [fine, small + 66, fine, small + 64]
    assert seen[10:] == [small, 0]
    assert node.used_bytes() < MIB
