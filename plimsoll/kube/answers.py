"""The answers of an HTTP/1.1 server, from bytes that come in pieces of any size. Pure.

Only answers to requests without an `Upgrade`, and not to `HEAD`, are read here. What always holds: an answer is given
once it is whole, and bytes after its end are an error.
"""

import re
from dataclasses import dataclass
from typing import Final

MOST_HEAD_BYTES: Final = 2**16
"""The longest head of an answer, and the longest line between two chunks. The API server's heads have 300 bytes."""

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: |$)")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_NO_BODY: Final = (204, 304)
_SWITCHED: Final = 101


class DamagedError(OSError):
    """The server's answer is not HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    Attributes:
        status: HTTP status, 200 to 599.
        body: the body, without any encoding of the transfer.
        retry_after: the header `Retry-After`, or None.
        stays_open: whether the connection may have another request.
    """

    status: int
    body: bytes
    retry_after: str | None = None
    stays_open: bool = True


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of an answer.

    Attributes:
        body_bytes: the size of the body; None if it comes in chunks, or ends with the connection.
        is_chunked: the body comes in chunks.
    """

    status: int
    body_bytes: int | None
    is_chunked: bool
    retry_after: str | None
    stays_open: bool


class AnswerReader:
    """Reads the answers of one connection, one after another."""

    def __init__(self) -> None:
        self._received = bytearray()  # and not read yet
        self._head: _Head | None = None
        self._chunks = bytearray()

    def feed(self, data: bytes | memoryview) -> Answer | None:
        """Take the next bytes; returns the answer once it is whole.

        Raises:
            DamagedError: the bytes are no answer, or go on after its end. Give no more.
        """
        self._received += data
        while self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                self._check_length()
                return None
            head = _head_of(bytes(self._received[:end]))
            del self._received[: end + 4]
            if head.status >= 200:  # else the final one follows
                self._head = head
        return self._whole(self._head)

    def end(self) -> Answer | None:
        """Take the end of the connection; returns an answer that only this shows to be whole."""
        head = self._head
        if head is None or head.is_chunked or head.body_bytes is not None:
            return None
        return self._done(head, bytes(self._received))

    def _whole(self, head: _Head) -> Answer | None:
        if head.is_chunked:
            return self._done(head, bytes(self._chunks)) if self._took_last_chunk() else None
        if head.body_bytes is None or len(self._received) < head.body_bytes:
            return None
        body = bytes(self._received[: head.body_bytes])
        del self._received[: head.body_bytes]
        return self._done(head, body)

    def _took_last_chunk(self) -> bool:
        while True:
            line = self._received.find(b"\r\n")
            if line < 0:
                self._check_length()
                return False
            size = _SIZE.fullmatch(self._received, 0, line)
            if size is None:
                raise DamagedError(f"no size of a chunk came, but {bytes(self._received[:40])!r}")
            start, end = line + 2, line + 2 + int(size[1], 16)
            if start == end:
                return self._took_trailers(line)
            if len(self._received) < end + 2:
                return False
            if self._received[end : end + 2] != b"\r\n":
                raise DamagedError("a chunk is longer than its size")
            self._chunks += self._received[start:end]
            del self._received[: end + 2]

    def _took_trailers(self, line: int) -> bool:
        """Pass over the lines after the last chunk, up to an empty one."""
        end = self._received.find(b"\r\n\r\n", line)
        if end < 0:
            self._check_length()
            return False
        del self._received[: end + 4]
        return True

    def _done(self, head: _Head, body: bytes) -> Answer:
        if self._received and (head.is_chunked or head.body_bytes is not None):
            raise DamagedError(f"after an answer came {bytes(self._received[:40])!r}")
        self._head = None
        self._chunks.clear()
        return Answer(head.status, body, head.retry_after, head.stays_open)

    def _check_length(self) -> None:
        if len(self._received) > MOST_HEAD_BYTES:
            raise DamagedError(f"the head of an answer has more than {MOST_HEAD_BYTES} bytes")


def _head_of(text: bytes) -> _Head:
    first, *lines = text.split(b"\r\n")
    found = _STATUS.match(first)
    if found is None or (status := int(found[2])) == _SWITCHED:
        raise DamagedError(f"no answer of HTTP/1.1 came, but {first[:40]!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
    if coding is not None and coding.lower() != b"chunked":
        raise DamagedError(f"the transfer of an answer is encoded as {coding[:40]!r}")
    if length is not None and not length.isdigit():
        raise DamagedError(f"the size of an answer is {length[:40]!r}")
    if status in _NO_BODY or status < 200:
        coding, length = None, b"0"
    retry_after = headers.get(b"retry-after")
    ends = coding is None and length is None
    return _Head(
        status=status,
        body_bytes=int(length) if length is not None and coding is None else None,
        is_chunked=coding is not None,
        retry_after=retry_after.decode("latin-1") if retry_after is not None else None,
        stays_open=found[1] == b"1" and not ends and b"close" not in headers.get(b"connection", b"").lower(),
    )
