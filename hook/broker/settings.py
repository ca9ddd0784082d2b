"""Everything about the broker that an operator may set, read once in `app`."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from hook.broker.core.wait_policies import WaitPolicyName
from plimsoll.brokerwire import SYSTEM_ROOT
from plimsoll.service import LogLevel


@dataclass(frozen=True, slots=True)
class Settings:
    """From the environment, for example `PLIMSOLL_BROKER_AUDIT_S=10`.

    Attributes:
        root: directory of everything the broker keeps. By default on disk and not in `/run`, so that the
            numbers of announcements go on counting after a reboot. One broker per root.
        audit_s: seconds between two looks at every slot, for what no event told.
        journal_max: announcements kept for subscribers that do not acknowledge; about 400 bytes each.
        connections_max: connections that one container's processes may hold open at once.
        overcommit: where lines promise more than a GPU has, let processes wait for memory; else nothing ever
            waits, and whoever is past what there is fails. Belongs with the monitor's `PLIMSOLL_OVERCOMMIT_RATIO`.
        wait_policy: who goes on first: `fifo`, `best-fit`, `recent-use` or `random` (ConVGPU, section III.D).
        wait_remind_s: seconds between two `paused` of the same wait.
        wait_longest_s: seconds after which a wait fails like an allocation past the line; None for never, as
            a job may well wait through a night.
        metrics_port: where Prometheus finds `/metrics`; None for nowhere, 0 for any free port (logged).
        metrics_host: the address it listens on.
        kubeconfig: where the pods bound to this node are watched: a path, `in-cluster`, or empty for nowhere.
        node: this node's name in Kubernetes; needed with `kubeconfig`.
        log_level: the least that is logged: debug, info, warning or error.
    """

    root: str = SYSTEM_ROOT
    audit_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    journal_max: Annotated[int, Meta(ge=16, le=10_000_000)] = 100_000
    connections_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 1024
    overcommit: bool = False
    wait_policy: WaitPolicyName = "fifo"
    wait_remind_s: Annotated[float, Meta(gt=0, le=86400)] = 300.0
    wait_longest_s: Annotated[float, Meta(gt=0)] | None = None
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    metrics_host: str = "127.0.0.1"
    kubeconfig: str = ""
    node: str = ""
    log_level: LogLevel = "info"


PREFIX: Final = "PLIMSOLL_BROKER_"
