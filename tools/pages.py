"""Pages of the site that are no files of docs/: generated references, and files of the tree that pages link to.

mkdocs calls the functions here by their names; `mkdocs.yml` names this file.
"""

import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.metrics import described, tables
from tools.settings import settings_page

ROOT: Final = Path(__file__).resolve().parents[1]
LINK: Final = re.compile(r"(!?)\[([^]]*)\]\((\.\./[^)\s#]*)(#[^)\s]*)?\)")
SOURCE: Final = "source"
"""The folder of the site that has the linked files."""
FOLDERS: Final = {"Runbooks": "runbooks", "Examples": "examples"}
"""Sections of the navigation that list each page of a folder of docs/, its README first."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections that list whole folders."""
    for section in config.nav or []:
        for title in section if isinstance(section, dict) else ():
            if title in FOLDERS:
                pages = (ROOT / "docs" / FOLDERS[title]).glob("*.md")
                found = sorted(pages, key=lambda page: (page.stem not in {"README", "index"}, page.stem))
                section[title] = [page.relative_to(ROOT / "docs").as_posix() for page in found]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Add the page of settings, and each file outside of docs/ to which a page links."""
    files.append(File.generated(config, "settings.md", content=settings_page()))
    linked = {
        outside
        for page in files.documentation_pages()
        for _, _, target, _ in LINK.findall(page.content_string)
        if (outside := _outside(page.src_uri, target)) and _served(outside)
    }
    for name in sorted(linked):
        files.append(File.generated(config, f"{SOURCE}/{name}", abs_src_path=str(ROOT / name)))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Append the tables of metrics to their page, and lead links out of docs/ to the copies."""
    del config, files
    here = page.file.src_uri

    def mended(link: re.Match[str]) -> str:
        mark, text, target, _ = link.groups()
        outside = _outside(here, target)
        if outside is None:
            return link[0]
        if not _served(outside):
            return text
        return f"{mark}[{text}]({posixpath.relpath(f'{SOURCE}/{outside}', posixpath.dirname(here) or '.')})"

    text = LINK.sub(mended, markdown)
    if here == "metrics.md":
        text += tables(described())
    rule = _rules().get(Path(here).stem)
    return text if rule is None else text.replace("\n\n##", f"\n\n{_shown(rule)}\n\n##", 1)


@cache
def _rules() -> dict[str, dict[str, Any]]:
    """The rules of Prometheus by the name of their alert."""
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "deploy/chart/rules").glob("*.yaml")]
    rules = [rule for file in files for group in file["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


def _shown(rule: dict[str, Any]) -> str:
    """When an alert of Prometheus fires."""
    lasting = f" for {rule['for']}" if "for" in rule else ""
    return f"It fires when this holds{lasting}:\n\n```promql\n{rule['expr'].strip()}\n```"


def _outside(page: str, target: str) -> str | None:
    """The path in the tree to which a page's link leads, or None where it stays within docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith("docs/") else path


def _served(name: str) -> bool:
    """Whether the site has a copy: folders and Markdown, whose own links would lead nowhere, have none."""
    return (ROOT / name).is_file() and not name.endswith(".md")
