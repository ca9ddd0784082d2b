"""Label selectors, read once from the API's form.

What always holds: two selectors with the same requirements are equal, in whatever order and form their author wrote
these. Follows `k8s.io/apimachinery/pkg/apis/meta/v1.LabelSelectorAsSelector`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from placer.core.selector import Check, check_of
from plimsoll.kube.models import LabelSelector, NodeSelectorRequirement

Requirement = tuple[str, str, tuple[str, ...]]
"""Key, operator, and values in order."""

OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})  # codespell:ignore notin
"""The operators that a label selector may have."""


@dataclass(frozen=True, slots=True)
class ParsedSelector:
    """A label selector.

    Attributes:
        requirements: those that must all hold; None for a selector that selects nothing.
    """

    requirements: frozenset[Requirement] | None
    _checks: tuple[Check, ...] = field(default=(), compare=False, repr=False)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet all requirements; a selector without requirements selects everything."""
        return self.requirements is not None and all(check(labels) for check in self._checks)

    @property
    def size(self) -> int:
        """The number of requirements."""
        return len(self.requirements or ())


NOTHING: Final = ParsedSelector(None)
"""The selector that selects nothing."""


def parse_selector(
    selector: LabelSelector | None, more: Iterable[Requirement] = (), *, unknown: bool = False
) -> ParsedSelector:
    """Read a selector.

    Args:
        selector: the selector in the API's form; None selects nothing.
        more: further requirements, which must hold too.
        unknown: the result of a requirement with an operator that is not known here.
    """
    if selector is None:
        return NOTHING
    written = selector.matchExpressions or ()
    requirements: frozenset[Requirement] = frozenset(
        {
            *((key, "In", (value,)) for key, value in (selector.matchLabels or {}).items()),
            *((one.key, one.operator, tuple(sorted({*(one.values or ())}))) for one in written),
            *more,
        }
    )
    checks = [
        check_of(NodeSelectorRequirement(key, operator, list(values)), unknown=unknown)
        for key, operator, values in requirements
    ]
    return ParsedSelector(requirements, tuple(checks))
