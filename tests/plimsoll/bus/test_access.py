"""The files by which a client shows itself to NATS are named in errors, and what they hold is not."""

from pathlib import Path

import pytest

from plimsoll.bus.access import BusAccess
from plimsoll.part.errors import InputError

SEED = "SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU"
PEM = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----\n"
JWT = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJqdGkiOiIxIn0.c2lnbmF0dXJl"
LONG = SEED * 100  # more than a name of a file may have


@pytest.mark.parametrize("secret", [SEED, f" {SEED.lower()}", PEM, JWT, LONG])
@pytest.mark.parametrize("field", ["ca", "certificate", "credentials", "nkey"])
def test_a_secret_in_place_of_its_file_is_not_shown(field: str, secret: str) -> None:
    """The error has the variable and the remedy, and no part of the value."""
    given = {field: secret} | ({"key": secret} if field == "certificate" else {})
    with pytest.raises(
        InputError, match=f"PLIMSOLL_NATS_{field.upper()}: .value not shown. .*; name"
    ) as refused:
        BusAccess(**given).check()
    told = str(refused.value)
    assert not [start for start in range(0, len(secret) - 8, 8) if secret[start : start + 8] in told], told


def test_two_identities_show_no_secret() -> None:
    """A seed beside credentials is refused without it."""
    with pytest.raises(InputError, match="is a second identity") as refused:
        BusAccess(credentials="/etc/user.creds", nkey=SEED).check()
    assert SEED not in str(refused.value)


def test_a_path_is_shown(tmp_path: Path) -> None:
    """A missing file, and a file with something else, are named."""
    missing, other = tmp_path / "none.nk", tmp_path / "other.nk"
    other.write_text(PEM)
    with pytest.raises(InputError, match=r"NATS_NKEY: '.*none\.nk' cannot be read \(No such file"):
        BusAccess(nkey=str(missing)).check()
    with pytest.raises(InputError, match=r"NATS_NKEY: '.*other\.nk' has no seed of a user's nkey") as refused:
        BusAccess(nkey=str(other)).check()
    assert "MC4C" not in str(refused.value)
