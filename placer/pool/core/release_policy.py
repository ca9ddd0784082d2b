"""How long idle GPUs stay in the pool, and how many are kept ready (KubeShare, HPDC 2020, §4.4).

| policy | ready ahead | an idle GPU beyond these |
| --- | --- | --- |
| `on-demand` | none | is given back at once |
| `reservation(n)` | n | is given back at once |
| `hybrid(n, s)` | n | is given back s seconds after its last use |

KubeShare chooses on-demand, and leaves the hybrid open.
"""

import re
from dataclasses import dataclass
from typing import Final

from plimsoll.part.errors import InputError

FORM: Final = re.compile(
    r"(on-demand)|reservation\(\s*(\d{1,6})\s*\)|hybrid\(\s*(\d{1,6})\s*,\s*(\d{1,9})\s*\)"
)


@dataclass(frozen=True, slots=True)
class ReleasePolicy:
    """A release policy.

    Attributes:
        ready: the idle GPUs that the pool has at all times, over all nodes that take pods.
        idle_s: the seconds for which any other GPU stays in the pool after its last use.
    """

    ready: int = 0
    idle_s: float = 0.0


def release_policy_of(field: str, text: str) -> ReleasePolicy:
    """Read a policy.

    Raises:
        InputError: the text is no policy.
    """
    found = FORM.fullmatch(text.strip())
    if found is None:
        remedy = "give on-demand, reservation(2) or hybrid(1, 300)"
        raise InputError(field, text, "is no release policy", remedy)
    _, kept, ready, idle_s = found.groups()
    if kept is not None:
        return ReleasePolicy(ready=int(kept))
    return ReleasePolicy(int(ready), float(idle_s)) if ready is not None else ReleasePolicy()
