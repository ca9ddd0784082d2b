"""Runs the statements that a test sends, a line of JSON each, and answers each with what it left in `answer`.

A name that a statement defines stays for the next statements. All statements find the names of `calls`.
"""

import json
import sys

from tests.hook.lib.programs import calls
from tests.programs.cuda import cuda, show

names: dict[str, object] = {name: value for name, value in vars(calls).items() if not name.startswith("__")}
cuda.context()
sys.stdout.write("ready\n")
sys.stdout.flush()
for line in sys.stdin:
    names["answer"] = None
    exec(json.loads(line), names)  # noqa: S102 - the test's own
    show(names["answer"])
