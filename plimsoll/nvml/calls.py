"""`pynvml`'s functions with a clock: whoever calls the driver learns what each call costs."""

import time
from collections.abc import Callable
from typing import Any

import pynvml

Took = Callable[[str, float], None]
"""Takes a function's name and the seconds that one call of it took, also of a call that failed."""


class Calls:
    """Has every function of `pynvml` under its own name, timed."""

    def __init__(self, took: Took) -> None:
        self._took = took

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Wrap a function at its first use."""
        function, took = getattr(pynvml, name), self._took

        def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - `pynvml` is untyped
            began_s = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                took(name, time.perf_counter() - began_s)

        setattr(self, name, timed)
        return timed


def ignore(name: str, seconds: float) -> None:
    """Take no notice of a call's cost."""
