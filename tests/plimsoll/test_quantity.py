"""Kubernetes quantities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.part.errors import InputError
from plimsoll.quantity import format_bytes, parse_milli, parse_size, parse_whole, plain_int, write_bytes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4Gi", 4 * 1024**3),
        ("0.5Gi", 512 * 1024**2),
        ("1e3", 1000),
        ("2k", 2000),
        (7, 7),
        ("1000m", 1),
        (".5k", 500),
    ],
)
def test_quantities_mean_what_kubernetes_means(text: str | int, value: int) -> None:
    """Binary, decimal and exponent forms come out exact."""
    assert parse_whole(text, "f", "bytes") == value


@pytest.mark.parametrize(
    "text", ["", "4GiB", "one", "0x10", "1e999", "--1", "1 Gi", "NaN", True, "٤Gi", "1e²", "１"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """The message names the field and the value."""
    with pytest.raises(InputError, match=r"^f: "):
        parse_whole(text, "f", "bytes")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("٤", None),
        ("1_0", None),
        (" 1", None),
        ("", None),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("000000000000000000000000000007", 7),
    ],
)
def test_plain_whole_numbers_have_ascii_digits_and_64_bits(text: str, value: int | None) -> None:
    """Other digits, underscores, spaces and more bits make no number, as in Kubernetes."""
    assert plain_int(text) == value


@given(st.integers(0, 2**63))
def test_a_written_size_is_read_as_the_same(size_bytes: int) -> None:
    """No byte is lost, and a size in whole units is written as a person writes it."""
    assert parse_whole(write_bytes(size_bytes), "f", "bytes") == size_bytes


def test_sizes_are_written_in_the_largest_whole_unit() -> None:
    """A size that is no whole number of bytes is answered with one near it."""
    sizes = (24 * 1024**3, 1500 * 1024**2, 0, 7, 1025)
    assert list(map(write_bytes, sizes)) == ["24Gi", "1500Mi", "0", "7", "1025"]
    with pytest.raises(
        InputError, match=r"'23\.9Gi' is not a whole number; give whole bytes, such as 24473Mi"
    ):
        parse_whole("23.9Gi", "f", "bytes")


def test_cpu_rounds_up_as_kubernetes_does() -> None:
    """Half a thousandth of a CPU rounds up to a thousandth."""
    assert (parse_milli("100u", "f"), parse_milli("250m", "f"), parse_milli(2, "f")) == (1, 250, 2000)


@given(st.integers(0, 2**60))
def test_every_whole_number_reads_back(number: int) -> None:
    """Plain digits are exact at any size."""
    assert parse_whole(str(number), "f", "bytes") == number


def test_bytes_for_people() -> None:
    """Bytes are shown with three significant digits and a unit."""
    assert [format_bytes(n) for n in (0, 1023, 1024, 1536 * 1024**2, 1000 * 1024**2)] == [
        "0",
        "1023",
        "1Ki",
        "1.5Gi",
        "1000Mi",
    ]


@pytest.mark.parametrize(
    ("text", "gpus", "remedy"),
    [
        ("8", 1, "8Gi"),
        (8, 1, "8Gi"),
        ("2048", 1, "2048Mi"),
        ("1Mi", 2, "2Mi"),
        ("1000k", 1, "1Mi"),
        ("1048575", 1, "1Mi"),
        ("1e3", 1, "1Mi"),
    ],
)
def test_memory_without_its_unit_is_refused(text: str | int, gpus: int, remedy: str) -> None:
    """No program runs in less than 1Mi on a GPU, so such a size lacks its unit; the remedy names one."""
    with pytest.raises(InputError, match=f"a container needs 1Mi or more.*write the unit, such as {remedy}$"):
        parse_size(text, "memory", gpus)
    assert parse_size("2Mi", "memory", 2) == 2 * 1024**2
    assert parse_size("0", "memory") == 0
