"""Lists of CPUs as Linux writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cpus import MOST_CPUS, parse_cpus, ranges
from plimsoll.part.errors import InputError


@given(st.sets(st.integers(0, MOST_CPUS - 1)))
def test_a_list_reads_back(cpus: set[int]) -> None:
    """Any CPUs are the same after they were written and read."""
    assert parse_cpus(ranges(sorted(cpus)), "cpus") == cpus


@pytest.mark.parametrize("text", ["0-", "-1", "3-1", "1024", "0,,1", "0 1", "x", "0-99999"])
def test_no_list_is_refused(text: str) -> None:
    """A text that is no list is refused with its field."""
    with pytest.raises(InputError, match=r"cores.*is no list of CPUs"):
        parse_cpus(text, "cores")
