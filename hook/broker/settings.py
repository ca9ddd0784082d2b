"""Everything about the broker that an operator may set, read once in `app`."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from hook.broker.core.memory.policies import WaitPolicyName
from hook.broker.core.shares.settings import ShareSettings
from plimsoll.broker.wire import SYSTEM_ROOT
from plimsoll.part.entry import LogLevel
from plimsoll.part.errors import InputError

_SHARES: Final = ShareSettings()


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
        measure: read NVML here, for memory that no call counts. Where a monitor runs, it measures for the broker.
        share_tick_ms: how often the use of GPUs that are shared or limited is read and charged.
        share_quantum_ms: half of it is how far a container may be ahead of its due while others wait.
        share_ahead_ms: work that a process may have queued on a GPU that others share; below a tick its GPU may stand
            idle between launches.
        share_alone_ms: about as much where it is alone: so long a newcomer waits for its part at most.
        share_slice_ms: the GPU's time slice, as set by `nvidia-smi compute-policy --set-timeslice`.
        share_relax_s: after so long as the only one that wants its GPUs, a container without a limit is not metered.
        share_unmet_s: who wanted throughout so long and got less than its request is announced.
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
    measure: bool = False
    share_tick_ms: Annotated[float, Meta(ge=1, le=100)] = _SHARES.tick_ms
    share_quantum_ms: Annotated[float, Meta(ge=1, le=10_000)] = _SHARES.quantum_ms
    share_ahead_ms: Annotated[float, Meta(ge=1, le=1000)] = _SHARES.ahead_ms
    share_alone_ms: Annotated[float, Meta(ge=1, le=10_000)] = _SHARES.alone_ms
    share_slice_ms: Annotated[float, Meta(ge=0.1, le=100)] = _SHARES.slice_ms
    share_relax_s: Annotated[float, Meta(gt=0, le=3600)] = _SHARES.relax_s
    share_unmet_s: Annotated[float, Meta(ge=1, le=3600)] = _SHARES.unmet_s
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    metrics_host: str = "127.0.0.1"
    kubeconfig: str = ""
    node: str = ""
    log_level: LogLevel = "info"

    def shares(self) -> ShareSettings:
        """What the share scheduler is to go by.

        Raises:
            InputError: less may be queued where others share the GPU than is needed, or more than where nobody does.
        """
        field, ahead_ms = PREFIX + "SHARE_AHEAD_MS", self.share_ahead_ms
        if ahead_ms < self.share_tick_ms:
            remedy = f"give at least {self.share_tick_ms:g}, or a shorter {PREFIX}SHARE_TICK_MS"
            raise InputError(field, ahead_ms, f"is below a tick of {self.share_tick_ms:g}", remedy)
        if ahead_ms > self.share_alone_ms:
            remedy = f"give at most {self.share_alone_ms:g}, or raise {PREFIX}SHARE_ALONE_MS"
            raise InputError(
                field, ahead_ms, f"is above the {self.share_alone_ms:g} of one who is alone", remedy
            )
        return ShareSettings(
            tick_ms=self.share_tick_ms,
            quantum_ms=self.share_quantum_ms,
            ahead_ms=ahead_ms,
            alone_ms=self.share_alone_ms,
            slice_ms=self.share_slice_ms,
            relax_s=self.share_relax_s,
            unmet_s=self.share_unmet_s,
        )


PREFIX: Final = "PLIMSOLL_BROKER_"
