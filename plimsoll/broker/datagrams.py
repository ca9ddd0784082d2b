"""The datagrams of library and broker over `hook.sock` (SOCK_SEQPACKET), defined once for Python and for C.

What `plimsoll.broker.pages` says of numbers and times holds here too.
"""

import ctypes
from typing import Final

from plimsoll.broker.pages import UUID_BYTES

MESSAGE_MAGIC: Final = 0x314D4C50  # "PLM1"

KIND_HELLO: Final = 1
"""A process claimed slot `slot` of `counts`. Sent once per process, before its first allocation."""

KIND_CONTEXT: Final = 2
"""A process made its first context on GPU `gpu_uuid`; NVML lists it from now on."""

KIND_DENIED: Final = 3
"""The library refused `requested_bytes` on `gpu_uuid`, where `used_bytes` of `line_bytes` were in use."""

KIND_UNKNOWN: Final = 4
"""The program looked up the driver function `text`, which the library does not know. The lookup passed through."""

KIND_WAIT: Final = 5
"""`requested_bytes` on `gpu_uuid` are within the line but past `granted_bytes`. The sender keeps this connection open
and waits on it for one answer, `KIND_GRANTED` or `KIND_REFUSED`. Closing the connection ends the wait."""

KIND_GRANTED: Final = 6
"""Answer: `granted_bytes` was raised; try again. Another process of the container may have been faster: then wait
again."""

KIND_REFUSED: Final = 7
"""Answer: this wait would never end, for the reason in `text`. The allocation fails like one past the line."""

KIND_FREED: Final = 8
"""A process freed memory on `gpu_uuid`, where `is_wanted` said that another allocation waits for memory."""


class Message(ctypes.LittleEndianStructure):
    """A datagram from the library to the broker over `hook.sock` (SOCK_SEQPACKET).

    The message does not name its sender: the socket's directory gives the container, the kernel
    (SO_PEERCRED) the process.
    """

    _pack_ = 8
    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint16),
        ("kind", ctypes.c_uint16),
        ("slot", ctypes.c_uint32),
        ("reserved32", ctypes.c_uint32),
        ("owner", ctypes.c_uint64),
        ("requested_bytes", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
        ("line_bytes", ctypes.c_uint64),
        ("gpu_uuid", ctypes.c_char * UUID_BYTES),
        ("text", ctypes.c_char * 64),
        ("reserved", ctypes.c_uint64 * 12),
    )
