"""The subscribers in docs/examples. `python -m tests.docs.subscribers` builds the one in Go, before the tests."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "docs" / "examples"
IN_GO: Final = ROOT / "build" / "programs" / "subscriber"


def main() -> None:
    """Build the program in Go by Go alone: it needs no other package."""
    alone = {"GOPROXY": "off", "GO111MODULE": "off"}
    go = Path(sys.executable).parent / "go"
    subprocess.run(
        [go, "build", "-o", IN_GO, EXAMPLES / "subscriber.go"], env={**os.environ, **alone}, check=True
    )


if __name__ == "__main__":
    main()
