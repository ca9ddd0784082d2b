"""The images are built as their documents say. `make e2e-kube` builds and runs them."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "images" / "Dockerfile").read_text()


@pytest.mark.parametrize("base", ["", "python:3.11", "docker.io/library/python:3.11-slim-bookworm"])
def test_a_base_without_a_digest_is_refused(base: str) -> None:
    """The same tag may be another image tomorrow. The message shows the form."""
    ended = subprocess.run([ROOT / "tools" / "images", base], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert f"BASE='{base}': give a base image by its digest" in ended.stderr


def test_nothing_runs_or_is_fetched_in_a_build() -> None:
    """A machine builds for the other architecture, and an air-gapped site builds too."""
    instructions = {line.split()[0] for line in DOCKERFILE.splitlines() if re.match(r"[A-Z]+ ", line)}
    assert instructions == {"ARG", "FROM", "COPY", "ENV", "LABEL", "USER", "CMD"}
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)[0] == "${BASE}"


def test_the_placers_image_has_no_rights() -> None:
    """Placer and webhook run as a user without rights, by number, as `runAsNonRoot` cannot read names."""
    targets = dict(re.findall(r"^FROM packages AS (\w+)\n(?:#.*\n)*USER (\S+)", DOCKERFILE, re.MULTILINE))
    assert targets == {"placer": "65532:65532", "node": "0:0"}


def test_the_command_line_is_on_the_path() -> None:
    """`plimsoll` runs by its name in a container, with the base's own Python."""
    assert re.search(
        r"^COPY \$\{TARGETARCH\}/plimsoll.command /usr/local/bin/plimsoll$", DOCKERFILE, re.MULTILINE
    )
    [form] = re.findall(
        r"printf '(.*)' >\"\$folder/plimsoll.command\"", (ROOT / "tools" / "images").read_text()
    )
    assert form == '#!/bin/sh\\nexec python -m plimsoll "$@"\\n'
