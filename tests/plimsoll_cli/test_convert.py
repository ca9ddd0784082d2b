"""`plimsoll convert` where standard output takes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"


@pytest.mark.parametrize(
    ("redirection", "said"),
    [(">&-", "is closed; open it"), ("> /dev/full", "cannot be written (No space left on device); give it")],
)
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, redirection: str, said: str) -> None:
    """The exit code is 1, and the last line names cause and remedy."""
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD)
    command = f"exec {sys.executable} -m plimsoll convert {manifest} {redirection}"
    ended = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert lines[0] == "nothing is to be converted"
    assert len(lines) == 2
    assert lines[1].startswith(f"plimsoll: standard output {said}")
