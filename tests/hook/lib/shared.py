"""Programs that hand memory to each other: what they need beside `script.PRELUDE`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.hook.lib.container import Container
from tests.hook.lib.program import MIB, Node
from tests.hook.lib.script import Script

HELPERS: Final = """
class External(ctypes.Structure):
    _fields_ = [("type", INT), ("fd", U64), ("other", PTR), ("size", U64), ("flags", UINT), ("reserved", UINT * 17)]


class Buffer(ctypes.Structure):
    _fields_ = [("offset", U64), ("size", U64), ("flags", UINT), ("reserved", UINT * 17)]


class Opaque(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def create(size, device=0, usage=0):
    props = HandleProps(1, 1, Location(1, device))
    props.flags[2] = usage
    return make("cuMemCreate", SIZE(size), byref(props), U64(0))


def reserve(size):
    return make("cuMemAddressReserve", SIZE(size), SIZE(0), U64(0), U64(0)).value


def map_at(address, handle, size):
    must("cuMemMap", U64(address), SIZE(size), SIZE(0), handle, U64(0))


def map_in(handle, size):
    address = reserve(size)
    map_at(address, handle, size)
    return address


def unmap(address, size):
    must("cuMemUnmap", U64(address), SIZE(size))


def release(handle):
    must("cuMemRelease", handle)


def export(handle):
    fd = INT(-1)
    must("cuMemExportToShareableHandle", byref(fd), handle, 1, U64(0))
    return fd.value


def brought(fd):
    handle = make("cuMemImportFromShareableHandle", PTR(fd), 1)
    os.close(fd)
    return handle


def fetched(pid, fd):
    return os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)


def external(fd, size):
    return make("cuImportExternalMemory", byref(External(1, fd, None, size)))


def buffer_of(memory, size):
    return make("cuExternalMemoryGetMappedBuffer", memory, byref(Buffer(0, size)))


def offered(address):
    handle = Opaque()
    must("cuIpcGetMemHandle", byref(handle), U64(address))
    return bytes(handle.bytes).hex()


def opened(text):
    return make("cuIpcOpenMemHandle_v2", Opaque((ctypes.c_ubyte * 64)(*bytes.fromhex(text))), 1)
"""


@contextmanager
def sharing(node: Node, container: Container, root: Path) -> Iterator[Script]:
    """A program in a container with a context on the first GPU, that can share memory with others."""
    with Script(node, container.environment, root) as script:
        script.do(HELPERS)
        yield script


def agree(script: Script, node: Node, container: Container, mib: int) -> None:
    """The word and the emulator's own book say this."""
    assert container.used_bytes() == node.held_bytes({script.pid}) == mib * MIB
