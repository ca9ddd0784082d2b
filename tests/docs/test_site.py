"""The site has the pages that are generated, and its links out of docs/ lead to copies."""

import dataclasses
import re
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
    shared, _, rest = settings_page().partition("\n## Placer\n")
    section = ("\n## Placer\n" + rest).partition(f"\n## {part.capitalize()}\n")[2].partition("\n## ")[0]
    for field in dataclasses.fields(kind):
        name = field.name.upper()
        rows = [line for line in section.splitlines() if f"`{prefix}{name}`" in line]
        [row] = rows or [line for line in shared.splitlines() if re.match(rf"\| `(…|PLIMSOLL_){name}`", line)]
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


def test_tables_and_lists_are_rendered(site: Path) -> None:
    """No table or list item is left as text, as one would be that is indented by less than four blanks."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code|script).*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert "| --- |" not in text, page.name
        assert not re.search(r"^ *(\* |\d+\. )\S", text, re.MULTILINE), page.name
