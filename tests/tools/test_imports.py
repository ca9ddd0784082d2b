"""Files of a package that import each other are found."""

import sys
from pathlib import Path

import pytest

from tools.imports import circles_of

NAMING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from around import {}\n"


@pytest.mark.parametrize(
    ("a", "b", "circles"),
    [
        ("from around import b\n", "def f():\n    from around import a\n", [["around.a", "around.b"]]),
        ("from around import b\n", NAMING.format("a"), []),
        ("from around import b\n", "", []),
    ],
    ids=["also within a function", "for types alone", "one way"],
)
def test_circles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a: str, b: str, circles: list[list[str]]
) -> None:
    """An import within a function counts, one for types alone does not."""
    package = tmp_path / "around"
    package.mkdir()
    for name, text in (("__init__", ""), ("a", a), ("b", b)):
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert circles_of(["around"]) == circles
