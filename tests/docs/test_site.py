"""The site has the pages that are generated, and its links out of docs/ lead to copies."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tools.settings import PARTS, settings_page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_has_a_row(part: str) -> None:
    """The page of settings has each setting of each part, with a meaning."""
    prefix, kind = PARTS[part]
    section = settings_page().partition(f"## {part}\n")[2].partition("\n## ")[0]
    assert dataclasses.is_dataclass(kind)
    for field in dataclasses.fields(kind):
        [row] = [line for line in section.splitlines() if f"`{prefix}{field.name.upper()}`" in line]
        assert len(row.split(" | ")[-1]) > len("a |"), row


def test_the_generated_pages_are_there(site: Path) -> None:
    """Settings and metrics have their tables, and the page of an alert has its rule."""
    assert "PLIMSOLL_LEASE_S" in (site / "settings.html").read_text()
    assert "plimsoll_gpu_usable_bytes" in (site / "metrics.html").read_text()
    assert "It fires when this holds for 5m" in (site / "runbooks" / "PlimsollPlacerGone.html").read_text()


def test_files_outside_of_the_documents_have_copies(site: Path) -> None:
    """A link to a picture or a manifest elsewhere in the tree leads to a copy within the site."""
    assert "source/deploy/resize-role.yaml" in (site / "operations.html").read_text()
    for name in ("deploy/resize-role.yaml", "bench/results/placer-decisions.svg"):
        assert (site / "source" / name).read_bytes() == (ROOT / name).read_bytes()
