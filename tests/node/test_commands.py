"""The commands of a document are found as they stand."""

from tests.node.quickstart import commands


def test_commands_of_a_section_are_found_in_order() -> None:
    """Lines that a backslash continues are one command. Output, other sections and subsections are left out."""
    text = """## One

```console
$ first
its output
$ second \\
    goes on
```

### Below

```console
$ below
```

## Two
```console
$ other
```
"""
    assert commands(text, "## One") == ["first", "second \\\n    goes on"]
    assert commands(text, "### Below") == ["below"]
    assert commands(text, "## Two") == ["other"]
