"""Errors shared by all parts."""

from plimsoll.part.errors import SHOWN_CHARS, InputError


def test_endless_value_is_cut_in_the_message_and_kept_in_the_error() -> None:
    """A value of 200 KB does not reach events, conditions and logs, and the remedy does."""
    error = InputError("field", "x" * 200_000, "is no size", "write a number")
    assert len(str(error)) < SHOWN_CHARS + 60
    assert str(error).endswith("... is no size; write a number")
    assert len(str(error.value)) == 200_000


def test_short_value_is_shown_whole() -> None:
    """A value of a usual length stands in the message as it was written."""
    assert (
        str(InputError("field", "4GiB", "is no size", "write 4Gi")) == "field: '4GiB' is no size; write 4Gi"
    )
