"""The names of all `PLIMSOLL_*` variables, so that a misspelt name is refused instead of silently ignored.

What always holds: a part reads its own settings alone, and accepts the variables of other parts, of the library and
of the command line, as one machine may give all of them the same environment. Variables that the kubelet sets for
Services (`PLIMSOLL_PLACER_SERVICE_HOST`) are accepted too. The value of an unknown variable is never shown: it may be
a password.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from plimsoll.part.errors import InputError

PREFIX: Final = "PLIMSOLL_"

PART_PREFIXES: Final = ("PLIMSOLL_ALERTS_", "PLIMSOLL_BROKER_", "PLIMSOLL_POOL_", "PLIMSOLL_WEBHOOK_")
"""Parts whose settings have a prefix of their own. Each of these parts checks the names behind its prefix itself."""

_SETTINGS: Final = """
BROKER_ROOT CONTROL_SOCKET EXTENDER_CERTIFICATE EXTENDER_CLIENTS EXTENDER_CLIENT_CA EXTENDER_KEY EXTENDER_PORT
HEARTBEAT_S HTTP_ADDRESS HTTP_AUTH HTTP_HOST HTTP_PORT HTTP_TOKEN_FILE IDLE_PERIOD_S INSTANCE KUBECONFIG
LEASE_NAMESPACE LEASE_S LOCAL_NODES LOG_LEVEL NATS_CA NATS_CERTIFICATE NATS_CREDENTIALS NATS_KEY NATS_NKEY NATS_URL
NATS_URL_FILE NODE ON_VIOLATION OUTBOX_BYTES OVERCOMMIT_RATIO POLICY POOL_NAMESPACE RECONCILE_S REDIS_URL RELOCATION
RELOCATION_AFTER_S RELOCATION_PER_HOUR RELOCATION_SPARE_GPUS SHARERS_PER_GPU STATE_DIR STREAM_MAX_AGE_S
STREAM_MAX_BYTES STREAM_REPLICAS UNHELD_PODS VIOLATION_GRACE_S
"""
"""The settings of the monitor and the placer. A test compares these names with them."""

_PROGRAMS: Final = "COUNTS_DIR EMULATOR EMULATOR_DEVICES LIMITS_DIR LOG POD_UID"
"""The variables of the library, of the emulator, and of processes under the library."""

_COMMANDS: Final = "GPU_MEMORY PLACER_TOKEN PLACER_TOKEN_FILE PLACER_URL RELEASE_NAMESPACE"
"""The variables of the command line."""

_DEVELOPMENT: Final = "CACHE HAMMER_SEED TEST_GPU TORCH_PYTHON UPDATE"
"""The variables of tests and benchmarks."""

SHARED: Final = frozenset(
    PREFIX + name for names in (_SETTINGS, _PROGRAMS, _COMMANDS, _DEVELOPMENT) for name in names.split()
)
"""The variables that have no part's prefix."""

ALIKE: Final = 0.6
"""How alike two names must be, by `difflib`'s ratio, to suggest one for the other."""

_SERVICE: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$"
)
_LINK: Final = re.compile(r"^(tcp|udp|sctp)://")


class Hidden:
    """Stands in an error for a value that may be a secret."""

    def __repr__(self) -> str:
        return "(value not shown)"


def unknown_variables(
    environment: Mapping[str, str], own: Collection[str] = (), prefix: str = PREFIX
) -> Iterator[InputError]:
    """An error for each `PLIMSOLL_*` variable that no part knows, with the nearest spelling as the remedy.

    Args:
        environment: usually `os.environ`.
        own: the names of the part's own variables; none for a command.
        prefix: the beginning of the part's own variables. Behind it, only its own names are known.
    """
    for name in sorted(environment):
        if name.startswith(PREFIX) and not _is_known(name, environment[name], own, prefix):
            yield InputError(name, Hidden(), "is no setting of Plimsoll", _remedy(name, own))


def is_service_link(name: str, value: str) -> bool:
    """Whether the kubelet sets such a variable, for a Service of the pod's namespace."""
    return bool(_SERVICE.search(name)) or (name.endswith("_PORT") and bool(_LINK.match(value)))


def _is_known(name: str, value: str, own: Collection[str], prefix: str) -> bool:
    if name in own or name in SHARED or is_service_link(name, value):
        return True
    return any(name.startswith(other) for other in PART_PREFIXES if other != prefix)


def _remedy(name: str, own: Collection[str]) -> str:
    """The part's own names come first: another part's may be spelt more alike, and be of no use here."""
    for names in (own, SHARED):
        known = {one.removeprefix(PREFIX): one for one in names}
        if near := difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1, cutoff=ALIKE):
            return f"did you mean {known[near[0]]}? If not, remove it"
    return "remove it; `--help` names all settings"
