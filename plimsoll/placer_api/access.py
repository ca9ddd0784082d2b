"""The names by which readers of the placer's TCP port prove themselves, for the placer and its clients."""

import re
from pathlib import Path
from typing import Final

from plimsoll.part.errors import InputError
from plimsoll.part.variables import Hidden

AUTHORIZATION: Final = "Authorization"

PROXIED: Final = "Plimsoll-Authorization"
"""Has the same form and meaning as `Authorization`. The API server's proxy uses that header up: it never reaches the
placer."""

AUDIENCE: Final = "plimsoll"
"""The audience of tokens that are good for reading from the placer, and for nothing else in the cluster."""

READER: Final = "plimsoll-reader"
"""The chart's ServiceAccount whose tokens may read, and its roles."""


TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token, by RFC 6750."""

TOKEN_BYTES: Final = 16384
"""The longest token: those of identity providers, with a user's groups, have some KiB."""


def bearer(token: str) -> str:
    """The value of either header for a token."""
    return f"Bearer {token}"


def read_token(variable: str, path: Path) -> str:
    """The token in a file. Blocks.

    Args:
        variable: the setting that names the file.
        path: the file; blanks around the token count for nothing.

    Raises:
        InputError: there is no token in the file.
    """
    remedy = "write one token of letters, digits and ._~+/-= into it"
    try:
        with path.open("rb") as file:
            text = file.read(TOKEN_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        raise InputError(variable, str(path), f"cannot be read ({error.strerror})", remedy) from error
    except UnicodeError as error:
        raise InputError(variable, str(path), "holds no token", remedy) from error
    if len(text) > TOKEN_BYTES or not TOKEN.fullmatch(text):
        raise InputError(variable, str(path), "holds no token", remedy)
    return text


def check_token(variable: str, token: str) -> str:
    """The token that a variable holds; its value is shown in no error.

    Raises:
        InputError: the value is no token.
    """
    if len(token) > TOKEN_BYTES or not TOKEN.fullmatch(token):
        raise InputError(variable, Hidden(), "is no token", "give letters, digits and ._~+/-= alone")
    return token
