"""The subscribers in docs/events.md. `python -m tests.docs.subscribers` builds the one in Go, before the tests."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
IN_GO: Final = ROOT / "build" / "programs" / "subscriber"


def program(language: str) -> str:
    """The document's program in this language."""
    document = (ROOT / "docs" / "events.md").read_text()
    [text] = re.findall(rf"```{language}\n(.*?)```", document, re.DOTALL)
    assert isinstance(text, str)
    return text


def main() -> None:
    """Build the program in Go by Go alone: it needs no other package."""
    source = IN_GO.with_suffix(".go")
    source.write_text(program("go"))
    alone = {"GOPROXY": "off", "GO111MODULE": "off"}
    go = Path(sys.executable).parent / "go"
    subprocess.run([go, "build", "-o", IN_GO, source], env={**os.environ, **alone}, check=True)


if __name__ == "__main__":
    main()
