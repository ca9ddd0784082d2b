"""Runs one program: `python -m tests.programs.run MODULE FUNCTION ARGUMENTS`, with the arguments as JSON.

It prints what the function returns as a line of JSON.
"""

import importlib
import json
import sys

from tests.programs.cuda import show

module, function, arguments = sys.argv[1:]
show(getattr(importlib.import_module(module), function)(*json.loads(arguments)))
