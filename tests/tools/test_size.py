"""Lines of code are counted without blanks, comments and docstrings."""

import pytest

from tools.size import c_lines, python_lines

PYTHON = '''"""What it is for.

More of it.
"""

# A reason.
X = 1  # a reason

def f() -> str:
    """What it does."""
    return """
    a text, of two lines
    """
'''
C = """/* What it is for.
 */
#include <a.h>

// A reason.
static const char *a = "/* no comment"; /* a comment
   that goes on */ static int b;
static const char *c = "\\"//"; // a reason
"""


def test_python_has_no_docstrings() -> None:
    """A docstring is none of the code; a text that is a value is, with all of its lines."""
    assert python_lines(PYTHON) == 5


@pytest.mark.parametrize(("text", "lines"), [(C, 4), ("", 0), ("/**/\n", 0), ("int a; /* b */\n", 1)])
def test_c_has_no_comments(text: str, lines: int) -> None:
    """A comment is none of the code, on a line of its own or beside code; in a literal it is a part of the code."""
    assert c_lines(text) == lines
