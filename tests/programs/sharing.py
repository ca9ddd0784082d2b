"""Handing memory to another process, and getting it: by descriptor, by IPC handle, as external memory."""

import os
from ctypes import byref, c_ubyte, c_void_p

from tests.programs.cuda import INT, PTR, SIZE, U64, cuda
from tests.programs.structures import Buffer, External, HandleProps, Location, Opaque


def create(size: int, device: int = 0, usage: int = 0, handle_types: int = 1) -> c_void_p:
    """Physical memory that can be exported."""
    props = HandleProps(1, handle_types, Location(1, device), usage=usage)
    return cuda.make("cuMemCreate", SIZE(size), byref(props), U64(0))


def reserve(size: int) -> int:
    """An address range."""
    return cuda.make("cuMemAddressReserve", SIZE(size), SIZE(0), U64(0), U64(0)).value or 0


def map_at(address: int, handle: c_void_p, size: int) -> None:
    """Maps physical memory."""
    cuda.cuMemMap(U64(address), SIZE(size), SIZE(0), handle, U64(0))


def map_in(handle: c_void_p, size: int) -> int:
    """Maps physical memory into a range of its own."""
    address = reserve(size)
    map_at(address, handle, size)
    return address


def unmap(address: int, size: int) -> None:
    """Ends a mapping."""
    cuda.cuMemUnmap(U64(address), SIZE(size))


def release(handle: c_void_p) -> None:
    """Gives back a handle."""
    cuda.cuMemRelease(handle)


def export(handle: c_void_p) -> int:
    """A file descriptor of physical memory."""
    fd = INT(-1)
    cuda.cuMemExportToShareableHandle(byref(fd), handle, 1, U64(0))
    return fd.value


def brought(fd: int) -> c_void_p:
    """The physical memory behind a descriptor, which is closed."""
    handle = cuda.make("cuMemImportFromShareableHandle", PTR(fd), 1)
    os.close(fd)
    return handle


def fetched(pid: int, fd: int) -> int:
    """A descriptor like another process's."""
    return os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)


def external(fd: int, size: int) -> c_void_p:
    """The external memory behind a descriptor, which the driver closes."""
    return cuda.make("cuImportExternalMemory", byref(External(1, fd, None, size)))


def buffer_of(memory: c_void_p, size: int) -> c_void_p:
    """A buffer at the start of external memory."""
    return cuda.make("cuExternalMemoryGetMappedBuffer", memory, byref(Buffer(0, size)))


def offered(address: int) -> str:
    """The IPC handle of an allocation, as text."""
    handle = Opaque()
    cuda.cuIpcGetMemHandle(byref(handle), U64(address))
    return bytes(handle.bytes).hex()


def opaque(text: str) -> Opaque:
    """The meaning of such a text."""
    return Opaque((c_ubyte * 64)(*bytes.fromhex(text)))


def opened(text: str) -> c_void_p:
    """The address of an allocation that another process offered."""
    return cuda.make("cuIpcOpenMemHandle_v2", opaque(text), 1)
