"""The driver's structures that the test programs hand to it, under shorter names and as cuda.h lays them out."""

import ctypes
from ctypes import c_int as INT  # noqa: N812 - as in `cuda`
from ctypes import c_size_t as SIZE  # noqa: N812
from ctypes import c_uint as UINT  # noqa: N812
from ctypes import c_uint64 as U64  # noqa: N812
from ctypes import c_void_p as PTR  # noqa: N812


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", INT), ("id", INT)]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", Location), ("flags", INT)]


class HandleProps(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", INT),
        ("handle_types", INT),
        ("location", Location),
        ("meta", PTR),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", UINT),
    ]


class PoolProps(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = [
        ("type", INT),
        ("handle_types", INT),
        ("location", Location),
        ("security", PTR),
        ("max_size", SIZE),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    ]


class NodeProps(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = [
        ("pool", PoolProps),
        ("access", PTR),
        ("access_count", SIZE),
        ("size", SIZE),
        ("address", U64),
    ]


class Opaque(ctypes.Structure):
    """CUipcMemHandle, and CUmemPoolPtrExportData: bytes that only the driver reads."""

    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class External(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC; the descriptor stands in a union with a larger handle."""

    _fields_ = [
        ("type", INT),
        ("fd", U64),
        ("other", PTR),
        ("size", U64),
        ("flags", UINT),
        ("reserved", UINT * 17),
    ]


class Buffer(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = [("offset", U64), ("size", U64), ("flags", UINT), ("reserved", UINT * 17)]


class Form(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = [
        ("width", SIZE),
        ("height", SIZE),
        ("depth", SIZE),
        ("format", INT),
        ("channels", UINT),
        ("flags", UINT),
    ]


class FlatForm(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = [("width", SIZE), ("height", SIZE), ("format", INT), ("channels", UINT)]


class Levels(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC."""

    _fields_ = [("offset", U64), ("form", Form), ("levels", UINT), ("reserved", UINT * 16)]


class MapInfo(ctypes.Structure):
    """CUarrayMapInfo."""

    _fields_ = [
        ("kind", INT),
        ("resource", PTR),
        ("place", INT),
        ("where", U64 * 4),
        ("operation", INT),
        ("handle_type", INT),
        ("handle", U64),
        ("offset", U64),
        ("devices", UINT),
        ("flags", UINT),
        ("reserved", UINT * 2),
    ]


class Side(ctypes.Structure):
    """The source or the target of a CUDA_MEMCPY2D."""

    _fields_ = [
        ("x", SIZE),
        ("y", SIZE),
        ("type", INT),
        ("host", PTR),
        ("device", U64),
        ("array", PTR),
        ("pitch", SIZE),
    ]


class Flat(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [("source", Side), ("target", Side), ("width", SIZE), ("height", SIZE)]


class Corner(ctypes.Structure):
    """The source or the target of a CUDA_MEMCPY3D_PEER; a CUDA_MEMCPY3D has padding for the context."""

    _fields_ = [
        ("x", SIZE),
        ("y", SIZE),
        ("z", SIZE),
        ("level", SIZE),
        ("type", INT),
        ("host", PTR),
        ("device", U64),
        ("array", PTR),
        ("context", PTR),
        ("pitch", SIZE),
        ("height", SIZE),
    ]


class Box(ctypes.Structure):
    """CUDA_MEMCPY3D_PEER."""

    _fields_ = [
        ("source", Corner),
        ("target", Corner),
        ("width", SIZE),
        ("height", SIZE),
        ("depth", SIZE),
    ]


class Attributes(ctypes.Structure):
    """CUmemcpyAttributes."""

    _fields_ = [("order", INT), ("source", Location), ("target", Location), ("flags", UINT)]


class Place(ctypes.Structure):
    """The memory of a CUmemcpy3DOperand."""

    _fields_ = [("address", U64), ("row_length", SIZE), ("layer_height", SIZE), ("hint", Location)]


class Operand(ctypes.Structure):
    """CUmemcpy3DOperand."""

    _fields_ = [("type", INT), ("place", Place)]


class Operation(ctypes.Structure):
    """CUDA_MEMCPY3D_BATCH_OP."""

    _fields_ = [
        ("source", Operand),
        ("target", Operand),
        ("width", SIZE),
        ("height", SIZE),
        ("depth", SIZE),
        ("order", INT),
        ("flags", UINT),
    ]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("shape", UINT * 6),
        ("shared", UINT),
        ("stream", PTR),
        ("attributes", PTR),
        ("count", UINT),
    ]


class Launch(ctypes.Structure):
    """CUDA_LAUNCH_PARAMS."""

    _fields_ = [("function", PTR), ("shape", UINT * 6), ("shared", UINT), ("stream", PTR), ("params", PTR)]


class Kernel(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = [
        ("function", PTR),
        ("shape", UINT * 6),
        ("shared", UINT),
        ("params", PTR),
        ("extra", PTR),
        ("kernel", PTR),
        ("context", PTR),
    ]


class Host(ctypes.Structure):
    """CUDA_HOST_NODE_PARAMS."""

    _fields_ = [("function", PTR), ("data", PTR)]


class Resource(ctypes.Structure):
    """CUdevResource."""

    _fields_ = [
        ("type", INT),
        ("device", INT),
        ("padding", ctypes.c_ubyte * 88),
        ("sms", UINT),
        ("rest", ctypes.c_ubyte * 44),
    ]
