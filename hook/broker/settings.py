"""Everything about the broker that an operator may set, read once in `app`."""

from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from hook.broker.core.shares.settings import ShareSettings
from hook.broker.core.wait_policies import WaitPolicyName
from plimsoll.brokerwire import SYSTEM_ROOT
from plimsoll.errors import InputError
from plimsoll.service import LogLevel

_SHARES: Final = ShareSettings()
_TurnMs = Annotated[float, Meta(ge=1, le=10_000)]
"""Shorter than a millisecond, handing over would cost more than the turn; longer than 10 s, others seem to hang."""


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
        share_quota_ms: how long a container keeps the GPU time that others wait for, before anything was measured.
        share_quota_least_ms: the quota adapts itself to what handing over costs, but never goes below this.
        share_quota_most_ms: nor above this, as it is how long others wait; equal to the least, it is fixed.
        share_window_ms: of a request that was not used, so much of its time may still be claimed.
        share_grace_ms: how long a container may take to end its work after its turn; then others go on beside it.
        share_relax_s: after so long alone on its GPUs, a container without a limit is not metered any more.
        share_run_ahead_us: work that a metered container may queue, and so most of what others wait for at a
            hand-over; below some hundreds its GPU may stand idle between launches.
        share_idle_us: a container that is idle for so long gives its turn to those who wait.
        share_unmet_s: who got less than its request for so long is announced.
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
    share_quota_ms: _TurnMs = _SHARES.quota_ms
    share_quota_least_ms: _TurnMs = _SHARES.quota_least_ms
    share_quota_most_ms: _TurnMs = _SHARES.quota_most_ms
    share_window_ms: Annotated[float, Meta(ge=10, le=60_000)] = _SHARES.window_ms
    share_grace_ms: Annotated[float, Meta(ge=1, le=60_000)] = _SHARES.grace_ms
    share_relax_s: Annotated[float, Meta(gt=0, le=3600)] = _SHARES.relax_s
    share_run_ahead_us: Annotated[int, Meta(ge=50, le=1_000_000)] = _SHARES.run_ahead_us
    share_idle_us: Annotated[int, Meta(ge=50, le=1_000_000)] = _SHARES.idle_us
    share_unmet_s: Annotated[float, Meta(ge=1, le=3600)] = _SHARES.unmet_s
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    metrics_host: str = "127.0.0.1"
    kubeconfig: str = ""
    node: str = ""
    log_level: LogLevel = "info"

    def shares(self) -> ShareSettings:
        """What the share scheduler is to go by.

        Raises:
            InputError: the quota's bounds exclude it, or each other.
        """
        least, most = self.share_quota_least_ms, self.share_quota_most_ms
        if least > most:
            remedy = f"give at most {most:g}, or raise {PREFIX}SHARE_QUOTA_MOST_MS"
            problem = f"is above the most of {most:g}"
            raise InputError(PREFIX + "SHARE_QUOTA_LEAST_MS", least, problem, remedy)
        if not least <= self.share_quota_ms <= most:
            field = PREFIX + "SHARE_QUOTA_MS"
            remedy = f"give {least:g} to {most:g}, or move {PREFIX}SHARE_QUOTA_LEAST_MS and _MOST_MS"
            raise InputError(field, self.share_quota_ms, "is not between its bounds", remedy)
        return ShareSettings(
            quota_ms=self.share_quota_ms,
            quota_least_ms=least,
            quota_most_ms=most,
            window_ms=self.share_window_ms,
            grace_ms=self.share_grace_ms,
            relax_s=self.share_relax_s,
            run_ahead_us=self.share_run_ahead_us,
            idle_us=self.share_idle_us,
            unmet_s=self.share_unmet_s,
        )


PREFIX: Final = "PLIMSOLL_BROKER_"
