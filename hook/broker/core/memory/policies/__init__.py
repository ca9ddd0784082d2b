"""The wait policies, one file each, by their names in `PLIMSOLL_BROKER_WAIT_POLICY`."""

from typing import Literal, assert_never

from hook.broker.core.memory.policies.best_fit import BestFit
from hook.broker.core.memory.policies.fifo import Fifo
from hook.broker.core.memory.policies.policy import WaitPolicy
from hook.broker.core.memory.policies.random_choice import RandomChoice
from hook.broker.core.memory.policies.recent_use import RecentUse

WaitPolicyName = Literal["fifo", "best-fit", "recent-use", "random"]


def wait_policy(name: WaitPolicyName, seed: bytes) -> WaitPolicy:
    """The policy of this name.

    Args:
        name: a value of the setting.
        seed: used by `random` alone; at most 64 bytes.
    """
    match name:
        case "fifo":
            return Fifo()
        case "best-fit":
            return BestFit()
        case "recent-use":
            return RecentUse()
        case "random":
            return RandomChoice(seed)
        case _:
            assert_never(name)
