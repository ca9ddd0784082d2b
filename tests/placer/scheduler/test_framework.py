"""The framework reads the reasons of its plugins."""

import pytest

from placer.core.ledger import Ledger
from placer.core.reasons import Reason
from placer.scheduler.plugins.pod_topology_spread import NO_DOMAIN, SKEWED
from placer.scheduler.profile import Profile
from placer.scheduler.queue.queueing_hints import EVERYTHING, Cause

FRAMEWORK = Profile(Ledger()).framework


@pytest.mark.parametrize(
    ("reason", "cause", "is_resolvable"),
    [
        (SKEWED, Cause.RULES, True),
        (NO_DOMAIN, Cause.NODE, False),
        ("Insufficient cpu", Cause.RESOURCES, True),
        ("Insufficient example.com/fpga", Cause.RESOURCES, True),
        (Reason.GPU_SHARE.value, Cause.SHARE, True),
        (Reason.GPU_MODEL.value, Cause.GPUS, False),
        ("node(s) had untolerated taint {k: v}", Cause.NODE, False),
        ("a reason of tomorrow", EVERYTHING, False),
    ],
)
def test_a_reason_is_known_by_its_text_or_else_by_its_beginning(
    reason: str,
    cause: Cause,
    is_resolvable: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """A reason that begins like another one keeps its own cause, and preemption is tried for what ends with pods."""
    assert FRAMEWORK.cause(reason) == cause
    assert FRAMEWORK.is_resolvable([reason]) == is_resolvable
