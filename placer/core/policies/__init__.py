"""Placement policies, one file each, all with the interface of `placer.core.policies.policy`.

Further ones may be installed: an entry point of the group `plimsoll.policies` names a `Policy`.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Final

from placer.core.policies.binpack import BINPACK
from placer.core.policies.headroom import HEADROOM, LITERAL
from placer.core.policies.installed import Installed
from placer.core.policies.locality import LOCALITY
from placer.core.policies.policy import Policy
from placer.core.policies.topology import TOPOLOGY
from plimsoll.part.errors import InputError

__all__ = ["ENTRY_POINTS", "LOCALITY", "POLICIES", "Policy", "policy_named"]

POLICIES: Final[dict[str, Policy]] = {
    policy.name: policy for policy in (HEADROOM, LITERAL, BINPACK, LOCALITY, TOPOLOGY)
}

ENTRY_POINTS: Final = "plimsoll.policies"
"""The group of entry points under which packages offer policies. A policy of ours cannot be replaced."""

_OURS: Final = {
    "fragmentation": "placer.core.policies.fragmentation:FRAGMENTATION",
    "plimsoll": "placer.core.policies.plimsoll:PLIMSOLL",
}
"""The policies that are loaded when they are named: they import numpy, a tenth of a second."""

_INSTALLED: Final[dict[str, EntryPoint]] = {
    **{one.name: one for one in entry_points(group=ENTRY_POINTS)},
    **{name: EntryPoint(name, value, ENTRY_POINTS) for name, value in _OURS.items()},
}
"""The policies that are not loaded yet. They are read at import, because the event loop must not read disks."""

_GUARDED: Final[dict[str, Policy]] = {}
"""The policies of other packages that were named before, each in its guard."""


def policy_named(name: str, field: str) -> Policy:
    """The policy of that name: one of ours, or an installed one.

    Raises:
        InputError: there is no such policy, or it cannot be loaded; `field` is the place of the name in the message.
    """
    if name in POLICIES:
        return POLICIES[name]
    if name not in _INSTALLED:
        names = ", ".join(sorted({*POLICIES, *_INSTALLED}))
        raise InputError(field, name, "is no placement policy", f"choose one of {names}")
    if name in _OURS:
        return _loaded(_INSTALLED[name], field)
    if name not in _GUARDED:
        _GUARDED[name] = Installed(_loaded(_INSTALLED[name], field))
    return _GUARDED[name]


def _loaded(entry: EntryPoint, field: str) -> Policy:
    remedy = f"mend the package that names {entry.value}, or choose another policy"
    try:
        policy = entry.load()
    except (Exception, SystemExit) as error:  # a package of somebody else may raise anything
        raise InputError(field, entry.name, f"cannot be loaded: {error}", remedy) from error
    if not isinstance(policy, Policy) or policy.name != entry.name:
        problem = f"is not loaded as a policy of that name, but as {policy!r}"
        raise InputError(field, entry.name, problem, remedy)
    return policy
