"""Answers of an HTTP/1.1 server are read whole, however their bytes are cut, and damage is an error."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.kube.answers import Answer, AnswerReader, DamagedError

SIZED = b"HTTP/1.1 201 Created\r\nContent-Type: a/b\r\nContent-Length: 7\r\n\r\n{\r\n\r\n12"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKED += b"3\r\n{1\r\r\nA;x=y\r\n0123\r\n\r\n89\r\n0\r\nTrailer: x\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
LATER = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
ANSWERS = {
    SIZED: Answer(201, b"{\r\n\r\n12"),
    CHUNKED: Answer(200, b"{1\r0123\r\n\r\n89"),
    EMPTY: Answer(204, b""),
    LATER: Answer(429, b"", "3", stays_open=False),
    INTERIM + SIZED: Answer(201, b"{\r\n\r\n12"),
}


@given(st.lists(st.sampled_from(list(ANSWERS)), min_size=1, max_size=4), st.randoms())
def test_answers_are_the_same_however_their_bytes_are_cut(texts: list[bytes], draws: random.Random) -> None:
    """Each answer is given once, with its last byte, in pieces of any size."""
    reader = AnswerReader()
    for text in texts:
        cuts = sorted({0, len(text), *(draws.randrange(len(text)) for _ in range(5))})
        *first, last = [text[start:end] for start, end in itertools.pairwise(cuts)]
        assert [reader.feed(piece) for piece in first] == [None] * len(first)
        assert reader.feed(last) == ANSWERS[text]


def test_an_answer_without_a_size_ends_with_its_connection() -> None:
    """The end of the connection makes such an answer whole, and cuts off any other."""
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.0 200 OK\r\n\r\nab") is None
    assert reader.feed(b"c") is None
    assert reader.end() == Answer(200, b"abc", stays_open=False)
    for text in (SIZED, CHUNKED):
        reader = AnswerReader()
        assert reader.feed(text[:-1]) is None
        assert reader.end() is None


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nX: " + 2**16 * b"x",
    ],
)
def test_damage_is_an_error(text: bytes) -> None:
    """Bytes that are no answer, and bytes after an answer's end, are never taken for one."""
    with pytest.raises(DamagedError):
        AnswerReader().feed(text)
