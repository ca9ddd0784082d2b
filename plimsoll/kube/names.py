"""The names of objects, as the API server allows them. A name from outside becomes a part of an API path."""

from typing import Annotated, Final

import msgspec

NAME_PATTERN: Final = r"\A[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"

Name = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
"""A name that no API path understands as more than one name; decoding refuses any other text."""
