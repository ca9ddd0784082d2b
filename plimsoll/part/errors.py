"""Errors shared by all parts, split by what the caller does next.

Bad input is never retried: `InputError` carries field, value and remedy, so that the input's author can mend it.
Errors of one part (retry, conflict) live in that part.
"""

from typing import Final, TypeVar

E = TypeVar("E", bound=BaseException)

BAD_INPUT: Final = 2
"""The exit code of a part or a command that refuses its input."""

SHOWN_CHARS: Final = 200
"""The most characters of a wrong value that a message shows: a value may be as long as its author likes."""


class PlimsollError(Exception):
    """Anything Plimsoll raises on purpose."""


class CannotGoOnError(PlimsollError):
    """The process must end and be started again; the message says why."""


class InputError(PlimsollError):
    """A person or another program gave something that cannot work; retrying is pointless.

    Attributes:
        field: the wrong field, as its author names it (`spec.containers[main].resources…`).
        value: the field's value, as written.
        problem: the end of a sentence that begins with the value (`is negative`).
        remedy: one imperative sentence without a full stop.
    """

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {_shown(value)} {problem}; {remedy}")
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy


def errors_in(error: BaseException, kind: type[E]) -> list[E]:
    """The errors in a group, however deeply nested, or the one error; all must be of this kind.

    Raises:
        BaseException: `error` itself, if another error is among them.
    """
    found: list[E] = []
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else (error,):
        if isinstance(one, BaseExceptionGroup):
            found += errors_in(one, kind)
        elif isinstance(one, kind):
            found.append(one)
        else:
            raise error
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
