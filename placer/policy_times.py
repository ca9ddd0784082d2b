"""The time that each policy takes for a decision, and a warning that names a policy of another package that is slow.

A policy runs on the placer's event loop, so everything else waits for it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Histogram

from placer.core.policies.installed import Installed
from placer.core.policies.policy import Policy
from plimsoll.part.log import get_logger

SLOW_S: Final = 0.05
"""The time of one decision from which the placer warns: the policy alone then holds it to 20 pods a second."""

WARN_AGAIN_S: Final = 60.0


class PolicyTimes:
    """Measures decisions by policy."""

    def __init__(self, seconds: Histogram, clock_s: Callable[[], float] = time.perf_counter) -> None:
        """Measure into a histogram.

        Args:
            seconds: with the label `policy`.
            clock_s: a clock that never goes back, in seconds.
        """
        self._seconds = seconds
        self._clock_s = clock_s
        self._warned_s: dict[str, float] = {}

    @contextmanager
    def measured(self, policy: Policy) -> Iterator[None]:
        """Measure a decision by this policy, and warn if it is another package's and slow, once a minute."""
        began_s = self._clock_s()
        yield
        now_s = self._clock_s()
        self._seconds.labels(policy.name).observe(now_s - began_s)
        if not isinstance(policy, Installed) or now_s - began_s < SLOW_S:
            return
        if now_s - self._warned_s.get(policy.name, -WARN_AGAIN_S) >= WARN_AGAIN_S:
            self._warned_s[policy.name] = now_s
            get_logger().warning(
                "a policy of another package held up the placer",
                policy=policy.name,
                took_ms=round(1000 * (now_s - began_s)),
                remedy="make it faster, or uninstall it",
            )
