"""The check finds circles among C files over every kind of dependency, and no false ones."""

from pathlib import Path

import pytest

from tools.circles import circles_in, graph_of, main


def folder_of(root: Path, **texts: str) -> Path:
    """A folder with these files; the last underscore of a name stands for the dot before its suffix."""
    for name, text in texts.items():
        (root / ".".join(name.rsplit("_", 1))).write_text(text)
    return root


def test_headers_that_include_each_other_form_a_circle(tmp_path: Path) -> None:
    """A circle through headers alone is found, and a file that only depends on it is left out."""
    folder = folder_of(
        tmp_path, one_h='#include "two.h"\n', two_h='#include "one.h"\n', user_c='#include "one.h"\n'
    )
    assert circles_in(graph_of(folder)) == [["one", "two"]]


def test_calls_without_an_include_count(tmp_path: Path) -> None:
    """A call of another file's function is a dependency, whichever header declares that function."""
    shared = "int first(int);\nint second(int);\n"
    folder = folder_of(
        tmp_path,
        shared_h=shared,
        one_c='#include "shared.h"\nint first(int n) {\n    return second(n);\n}\n',
        two_c='#include "shared.h"\nint second(int n) {\n    return n ? first(n - 1) : 0;\n}\n',
    )
    assert circles_in(graph_of(folder)) == [["one", "two"]]


@pytest.mark.parametrize(
    "text",
    [
        "static int first(int n) {\n    return n;\n}\nint third(void) {\n    return first(1);\n}\n",
        "/* first(1) */\nint third(void) {\n    return 0;\n}\n",
        'const char *third(void) {\n    return "first(1)";\n}\n',
        "int first(int n);\nint third(void) {\n    return 3;\n}\n",
    ],
)
def test_what_is_no_call_does_not_count(tmp_path: Path, text: str) -> None:
    """A file's own static function, a comment, a string and a declaration are no dependencies."""
    one = "int third(void);\nint first(int n) {\n    return n + third();\n}\n"
    graph = graph_of(folder_of(tmp_path, one_c=one, two_c=text))
    assert graph["one"] == {"two"}
    assert graph["two"] == set()


def test_a_function_of_a_header_is_its_units(tmp_path: Path) -> None:
    """A static inline function in a header belongs to the header's unit, and a unit does not depend on itself."""
    graph = graph_of(
        folder_of(
            tmp_path,
            one_h="static inline int first(int n) {\n    return n;\n}\n",
            one_c='#include "one.h"\nint other(void) {\n    return first(2);\n}\n',
            two_c='#include "one.h"\nint second(void) {\n    return first(1);\n}\n',
        )
    )
    assert graph == {"one": set(), "two": {"one"}}


def test_the_circles_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status tells whether there is a circle, and standard error names its files."""
    folder = folder_of(tmp_path, one_h='#include "two.h"\n', two_h="\n")
    assert main([folder]) == 0
    (folder / "two.h").write_text('#include "one.h"\n')
    assert main([folder]) == 1
    assert "one depends on two" in capsys.readouterr().err
