"""The names of objects, as the API server allows them. A name from outside becomes a part of an API path."""

import hashlib
from typing import Annotated, Final

import msgspec

NAME_PATTERN: Final = r"\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"

Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
"""A name that no API path understands as more than one name; decoding refuses any other text."""

LONGEST_NAME: Final = 253
"""The most characters of an object's name."""


def fitted_name(text: str) -> str:
    """A name that is made from other names, such as an event's, at most as long as names may be.

    A longer one is cut, and ends in a digest of the whole, so that two long ones stay apart.
    """
    if len(text) <= LONGEST_NAME:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{text[: LONGEST_NAME - len(digest) - 1].rstrip('.-')}-{digest}"
