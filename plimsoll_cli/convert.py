"""`plimsoll convert`: a manifest written for another GPU scheduler, in Plimsoll's terms."""

import sys
from pathlib import Path
from typing import Literal

from plimsoll.dialects.gpushare import Gpushare
from plimsoll.dialects.hami import Hami
from plimsoll.dialects.kai import Kai
from plimsoll.dialects.manifest import convert
from plimsoll.part.errors import InputError


def converted(path: str, gpushare_unit: Literal["GiB", "MiB"]) -> tuple[str, list[str]]:
    """The translated manifest at `path` (`-` is standard input), JSON as JSON, and a line for people on each change.

    Raises:
        InputError: the file cannot be read, or cannot be translated.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except UnicodeDecodeError as error:
        raise InputError("FILE", path, f"is no UTF-8 ({error})", "save it as UTF-8") from error
    except OSError as error:
        raise InputError("FILE", path, f"cannot be read ({error})", "name a manifest") from error
    return convert(text, (Hami(), Gpushare(gpushare_unit), Kai()))
