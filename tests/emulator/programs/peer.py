"""A process that shares memory with another, and runs the statements that a test sends it, a line of JSON each."""
# ruff: noqa: F401 - the statements use these names

import json
import os
import socket
import sys
from ctypes import byref, c_ubyte, c_void_p

from tests.programs import sharing
from tests.programs.cuda import INT, MIB, PTR, SIZE, U64, cuda, show
from tests.programs.sharing import brought, create, export, offered, opaque, release, unmap
from tests.programs.structures import Access, Location, Opaque, PoolProps

door = socket.socket(socket.AF_UNIX)


def map_in(handle: c_void_p, size: int) -> int:
    """Maps physical memory so that it can be read and written."""
    address = sharing.map_in(handle, size)
    cuda.cuMemSetAccess(U64(address), SIZE(size), byref(Access(Location(1, 0), 3)), SIZE(1))
    return address


def send(fd: int, path: str) -> None:
    """Sends a descriptor to the process that listens there."""
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(path)
        socket.send_fds(wire, [b"x"], [fd])


def listen(path: str) -> None:
    """Listens for a descriptor."""
    door.bind(path)
    door.listen(1)


def receive() -> int:
    """The descriptor that was sent."""
    return socket.recv_fds(door.accept()[0], 1, 1)[1][0]


def alloc(size: int) -> int:
    """The address of new device memory."""
    return cuda.alloc(size).value


def free(address: int) -> None:
    """Gives back device memory."""
    cuda.cuMemFree_v2(U64(address))


def opened(text: str) -> int:
    """The address of an allocation that the other process offered."""
    return sharing.opened(text).value or 0


def put(address: int, value: int) -> None:
    """Fills 64 bytes."""
    cuda.cuMemsetD8_v2(U64(address), value, SIZE(64))


def get(address: int) -> int:
    """The byte at an address."""
    back = (c_ubyte * 1)()
    cuda.cuMemcpyDtoH_v2(back, U64(address), SIZE(1))
    return back[0]


def obey() -> None:
    """Runs statements until there are no more."""
    cuda.context()
    show(1)
    for line in sys.stdin:
        exec(json.loads(line), globals())  # noqa: S102 - the test's own
