"""Errors shared by all parts, split by what the caller does next.

Bad input is never retried: `InputError` carries field, value and remedy, so that whoever wrote the input can
mend it. Errors of one part (retry, conflict) live in that part.
"""


class PlimsollError(Exception):
    """Anything Plimsoll raises on purpose."""


class InputError(PlimsollError):
    """A person or another program gave something that cannot work; retrying is pointless.

    Attributes:
        field: what was wrong, as its writer names it (`spec.containers[main].resources…`).
        value: what stood there, as written.
        remedy: what to write instead, one imperative sentence without a full stop.
    """

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {value!r} {problem}; {remedy}")
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
