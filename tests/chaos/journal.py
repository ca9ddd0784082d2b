"""The journal of a run: one JSON object a line, each with the seconds since the start and the name of an event."""

import json
import time
from pathlib import Path
from typing import Final

KEPT: Final = 50
"""Findings that the summary lists; the journal has all."""


class Journal:
    """Writes the journal and keeps the findings: things that must never happen."""

    def __init__(self, path: Path, seed: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.findings: list[str] = []
        self._started_s = time.monotonic()
        # A file of lines, so that a killed run leaves all but the last.
        self._file = path.open("w", buffering=1)
        self.note("seed", seed=seed)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_s

    def note(self, what: str, **fields: object) -> None:
        """Write one line."""
        line = {"t": round(self.elapsed_s, 3), "what": what, **fields}
        self._file.write(json.dumps(line, default=str) + "\n")

    def find(self, what: str, **fields: object) -> None:
        """Note something that must never happen."""
        self.note("FINDING", finding=what, **fields)
        if len(self.findings) < KEPT:
            self.findings.append(f"{self.elapsed_s:.1f} s: {what}")
        print(f"\n!!! {self.elapsed_s:.1f} s: {what}", flush=True)

    def close(self) -> None:
        """Close the file; write nothing afterwards."""
        self._file.close()
