"""Placement policies, one file each, all with the interface of `placer.core.policies.policy`.

Further ones may be installed: an entry point of the group `plimsoll.policies` names a `Policy`.
"""

from functools import cache
from typing import TYPE_CHECKING, Final

from placer.core.policies.binpack import BINPACK
from placer.core.policies.headroom import HEADROOM, LITERAL
from placer.core.policies.installed import Installed, is_its_own
from placer.core.policies.locality import LOCALITY
from placer.core.policies.policy import Policy, one_line
from placer.core.policies.topology import TOPOLOGY
from plimsoll.part.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "ENTRY_POINTS",
    "LOCALITY",
    "POLICIES",
    "Policy",
    "check_name",
    "listed_policies",
    "load_policies",
    "policy_named",
]

POLICIES: Final[dict[str, Policy]] = {
    policy.name: policy for policy in (HEADROOM, LITERAL, BINPACK, LOCALITY, TOPOLOGY)
}

ENTRY_POINTS: Final = "plimsoll.policies"
"""The group of entry points under which packages offer policies. A policy of ours cannot be replaced."""

OURS_LATER: Final = {
    "fragmentation": "placer.core.policies.fragmentation:FRAGMENTATION",
    "plimsoll": "placer.core.policies.plimsoll:PLIMSOLL",
}
"""The policies that are loaded by `load_policies`, or when they are named: they import numpy, a tenth of a second."""


@cache
def listed_policies() -> dict[str, "EntryPoint"]:
    """The policies that are loaded later. Reads disks, once, so ask before an event loop does."""
    from importlib.metadata import EntryPoint, entry_points  # noqa: PLC0415 - `plimsoll run` does without

    return {
        **{one.name: one for one in entry_points(group=ENTRY_POINTS)},
        **{name: EntryPoint(name, value, ENTRY_POINTS) for name, value in OURS_LATER.items()},
    }


_LOADED: Final[dict[str, Policy | BaseException]] = {}
"""The loaded ones, those of other packages in their guard, and the errors of those that cannot be loaded."""


def load_policies() -> None:
    """Load all policies. An import reads disks and takes long, so the event loop must not begin one.

    A policy that cannot be loaded is an error of the pods that name it.
    """
    for name in listed_policies():
        _loaded(name)


def check_name(name: str, field: str) -> None:
    """Check that there is a policy of that name, without loading it.

    Raises:
        InputError: there is none; `field` is the place of the name in the message.
    """
    if name not in POLICIES and name not in listed_policies():
        names = ", ".join(sorted({*POLICIES, *listed_policies()}))
        raise InputError(field, name, "is no placement policy", f"choose one of {names}")


def policy_named(name: str, field: str) -> Policy:
    """The policy of that name: one of ours, or an installed one.

    Raises:
        InputError: there is no such policy, or it cannot be loaded; `field` is the place of the name in the message.
    """
    check_name(name, field)
    if name in POLICIES:
        return POLICIES[name]
    loaded = _loaded(name)
    if isinstance(loaded, Policy):
        return loaded
    remedy = f"mend the package that names {listed_policies()[name].value}, or choose another policy"
    raise InputError(field, name, f"cannot be loaded: {one_line(str(loaded))}", remedy) from loaded


def _loaded(name: str) -> Policy | BaseException:
    if name not in _LOADED:
        found = _load(name)
        _LOADED[name] = Installed(found) if isinstance(found, Policy) and name not in OURS_LATER else found
    return _LOADED[name]


def _load(name: str) -> Policy | BaseException:
    try:
        policy = listed_policies()[name].load()
    except BaseException as error:  # a package of somebody else may raise anything
        if not is_its_own(error):
            raise
        return error
    if isinstance(policy, Policy) and policy.name == name:
        return policy
    return TypeError(f"{policy!r} is no policy of that name")
