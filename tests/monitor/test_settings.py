"""The monitor's settings."""

import pytest

from monitor.settings import load
from plimsoll.part.errors import InputError


def test_a_url_in_the_place_of_its_file_keeps_its_password() -> None:
    """The error names the variable and the server, and shows no password."""
    given = {"PLIMSOLL_NODE": "n", "PLIMSOLL_NATS_URL_FILE": "nats://u:s3cr3t@host:4222"}
    with pytest.raises(InputError, match=r"PLIMSOLL_NATS_URL_FILE: 'nats://…@host:4222' cannot") as refused:
        load(given)
    assert "s3cr3t" not in str(refused.value)


def test_an_age_that_nats_cannot_count_is_refused() -> None:
    """The server would refuse the stream, and the monitor would end by an error that names no setting."""
    with pytest.raises(InputError, match="PLIMSOLL_STREAM_MAX_AGE_S: '1e300' is refused"):
        load({"PLIMSOLL_NODE": "n", "PLIMSOLL_STREAM_MAX_AGE_S": "1e300"})


@pytest.mark.parametrize("variable", ["PLIMSOLL_STATE_DIR", "PLIMSOLL_BROKER_ROOT"])
def test_an_empty_folder_is_refused(variable: str) -> None:
    """A template that renders nothing does not scatter the monitor's files over the current directory."""
    with pytest.raises(InputError, match=f"{variable}: '' is refused"):
        load({"PLIMSOLL_NODE": "n", variable: ""})
