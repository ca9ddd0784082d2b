"""Causes of failed connections, in one line with the remedy."""

import errno

import nats.js.errors
import pytest

from plimsoll.part.causes import cause_of, disk_remedy


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (nats.js.errors.ServiceUnavailableError(), "start it with --jetstream"),
        (
            nats.js.errors.ServerError(
                code=500, err_code=10047, description="insufficient storage resources available"
            ),
            "lower PLIMSOLL_STREAM_MAX_BYTES",
        ),
        (
            nats.js.errors.NotFoundError(code=404, err_code=10059, description="stream not found"),
            "start a monitor or a placer, which make it",
        ),
    ],
)
def test_refusals_of_jetstream_have_a_remedy(error: Exception, remedy: str) -> None:
    """A server without JetStream, or without room for the stream, is told apart from one that is away."""
    assert remedy in cause_of(error, "PLIMSOLL_NATS_URL")


def test_a_full_disk_among_several_failures_is_named() -> None:
    """If one of several failures names a full disk, the remedy is to free room on that disk, and says whose it is."""
    full, denied = OSError(errno.ENOSPC, "no space"), OSError(errno.EACCES, "denied")
    assert disk_remedy(ExceptionGroup("", [denied, full]), "mend that", "the broker's") == (
        "free some room on the broker's disk"
    )
    assert disk_remedy(ExceptionGroup("", [denied]), "mend that") == "mend that"
