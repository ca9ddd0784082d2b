"""For each alert: series with which it must fire, and series with which it must stay quiet.

Series are written as `promtool` reads them: `1x10` is the value 1, and ten times more; `0+2x10` rises by 2 a minute.
"""

from dataclasses import dataclass, field
from typing import Final

HOUR: Final = 60
CONTAINER: Final = 'namespace="team", pod="train", uid="u", container="main"'
OF_CONTAINER: Final = {"namespace": "team", "pod": "train", "uid": "u", "container": "main"}


@dataclass(frozen=True, slots=True)
class Case:
    """An alert, and what of the world it is about.

    Attributes:
        fires: series by which it fires at `minute`, with one sample a minute.
        quiet: series by which it does not, each set for itself.
        labels: the labels of the alert, beside its name and severity.
    """

    alert: str
    minute: int
    fires: dict[str, str]
    quiet: tuple[dict[str, str], ...]
    labels: dict[str, str] = field(default_factory=dict)


def _gauge(alert: str, series: str, *, after: int, labels: dict[str, str] | None = None) -> Case:
    """An alert that fires while a gauge is 1 for this many minutes; one sample at 1 is no matter."""
    short = f"0x{after} 1 0x{2 * HOUR}"
    quiet = ({series: f"0x{2 * HOUR}"}, {series: short})
    return Case(alert, after + 2, {series: f"1x{2 * HOUR}"}, quiet, labels or {})


def _down(alert: str, series: str, *, after: int, labels: dict[str, str] | None = None) -> Case:
    """An alert that fires while a gauge is 0 for this many minutes; one sample at 0 is no matter."""
    quiet = ({series: f"1x{2 * HOUR}"}, {series: f"1x{after} 0 1x{2 * HOUR}"})
    return Case(alert, after + 2, {series: f"0x{2 * HOUR}"}, quiet, labels or {})


def _count(alert: str, series: str, labels: dict[str, str], *, step: int = 1) -> Case:
    """An alert that fires when a counter has risen, and not for a counter that rose long ago."""
    return Case(alert, 10, {series: f"0+{step}x{2 * HOUR}"}, ({series: f"7x{2 * HOUR}"},), labels)


def _buckets(name: str, labels: str, fast: int, slow: int) -> dict[str, str]:
    """A histogram of calls of which this many a minute take less than 0.1 s, and this many about 1 s."""
    comma = ", " if labels else ""
    return {
        f'{name}{{{labels}{comma}le="0.1"}}': f"0+{fast}x{HOUR}",
        f'{name}{{{labels}{comma}le="1.0"}}': f"0+{fast + slow}x{HOUR}",
        f'{name}{{{labels}{comma}le="+Inf"}}': f"0+{fast + slow}x{HOUR}",
    }


def _disk_fails(series: str, labels: dict[str, str]) -> Case:
    """The disk of a part fails once a minute; it is quiet where the disk failed for a moment only."""
    target = f'job="{labels["job"]}", instance="a"'
    failures = series % target
    quiet = ({failures: f"7x{HOUR}"}, {failures: f"0x10 4x{HOUR}"})
    return Case("PlimsollDiskFails", 15, {failures: f"0+1x{HOUR}"}, quiet, {**labels, "instance": "a"})


def _gone(alert: str, series: str, part: str) -> tuple[Case, ...]:
    """An alert that fires once a part's series or targets end; quiet without the part, and for its restart."""
    target, ended, other = (
        f'up{{job="plimsoll-{part}"}}',
        "1x5 stale",
        {'up{job="plimsoll-broker"}': f"1x{HOUR}"},
    )
    quiet = (other, {series: f"1x10 _x4 1x{2 * HOUR}"}, {series: ended, target: f"1x{2 * HOUR}"})
    return tuple(Case(alert, 45, {name: ended, **other}, quiet) for name in (series, target))


_NVML: Final = "plimsoll_nvml_call_seconds_bucket"
_DECISION: Final = "plimsoll_placer_decision_seconds_bucket"
_NODE: Final = {"node": "n1"}
_GPU: Final = {"node": "n1", "gpu": "g"}
_HEALTH: Final = 'plimsoll_gpu_health{node="n1", gpu="g", class="%s"}'
_SILENT: Final = 'plimsoll_placer_node_silent{node="n1", instance="%s"}'
_REACHES: Final = 'plimsoll_placer_nats_up{instance="%s"}'
_REFUSED: Final = 'plimsoll_placer_bind_failures_total{result="refused"}'
_PARKED: Final = 'plimsoll_placer_waiting_pods{place="parked"}'
_RIVALS: Final = 'plimsoll_placer_rival_binds_total{instance="%s"}'
_LEADERS: Final = 'plimsoll_placer_leader{instance="%s"}'

CASES: Final = (
    _down(
        "PlimsollPartDown",
        'up{job="plimsoll-broker", instance="a"}',
        after=5,
        labels={"job": "plimsoll-broker", "instance": "a"},
    ),
    *_gone("PlimsollPlacerGone", _LEADERS % "a", "placer"),
    *_gone("PlimsollWebhookGone", "plimsoll_webhook_certificate_expiry_timestamp_seconds", "webhook"),
    *_gone("PlimsollPoolGone", "plimsoll_pool_lost_gpus", "pool"),
    *_gone("PlimsollAlertsGone", "plimsoll_alerts_bus_away_seconds", "alerts"),
    Case(
        "PlimsollMonitorGone",
        45,
        {
            'plimsoll_broker_journal_entries{node="n1"}': f"0x{HOUR}",
            'plimsoll_driver_up{node="n1"}': "1x5 stale",
            'plimsoll_driver_up{node="n2"}': f"1x{HOUR}",
        },
        (
            {"plimsoll_broker_journal_entries": f"0x{HOUR}"},  # a scrape that names no node
            {
                'plimsoll_broker_journal_entries{node="n1"}': f"0x{HOUR}",
                'plimsoll_driver_up{node="n1"}': f"0x{HOUR}",
            },
            {
                'plimsoll_broker_journal_entries{node="n1"}': "0x5 stale",
                'plimsoll_driver_up{node="n1"}': "1x5 stale",
            },
        ),
        _NODE,
    ),
    Case(  # all monitors, in a scrape that names no node
        "PlimsollMonitorGone",
        45,
        {'up{job="plimsoll-broker"}': f"1x{HOUR}", 'up{job="plimsoll-monitor"}': "1x5 stale"},
        (
            {
                'up{job="plimsoll-broker"}': "1x5 stale",
                'up{job="plimsoll-monitor"}': "1x5 stale",
            },  # no GPU node is left
            {'up{job="plimsoll-broker"}': f"1x{HOUR}", 'up{job="plimsoll-monitor"}': f"1x{HOUR}"},
        ),
    ),
    Case(
        "PlimsollNoLeader",
        4,
        {_LEADERS % "a": f"0x{HOUR}", _LEADERS % "b": f"0x{HOUR}"},
        # One placer leads, and the Lease changes hands within a minute.
        ({_LEADERS % "a": f"1x3 0 0x{HOUR}", _LEADERS % "b": f"0x4 1x{HOUR}"},),
    ),
    Case(
        "PlimsollSeveralLeaders",
        3,
        {_LEADERS % "a": f"1x{HOUR}", _LEADERS % "b": f"1x{HOUR}"},
        ({_LEADERS % "a": f"1x{HOUR}", _LEADERS % "b": f"0x{HOUR}"},),
    ),
    Case(
        "PlimsollRivalBinds",
        25,
        {_RIVALS % "a": f"0+1x{HOUR}", _RIVALS % "b": f"0x{HOUR}"},
        ({_RIVALS % "a": f"0x10 3x{HOUR}"},),  # binds of the last leader, seen after the Lease changed hands
    ),
    _disk_fails('plimsoll_outbox_failures_total{%s, node="n1"}', {"job": "plimsoll-monitor", "node": "n1"}),
    _disk_fails("plimsoll_broker_disk_failures_total{%s}", {"job": "plimsoll-broker"}),
    _down("PlimsollNatsDown", 'plimsoll_nats_up{node="n1"}', after=2, labels=_NODE),
    _down("PlimsollNatsDown", "plimsoll_placer_nats_up", after=2),
    _down("PlimsollRedisDown", "plimsoll_placer_redis_up", after=5),
    _down("PlimsollDriverDown", 'plimsoll_driver_up{node="n1"}', after=5, labels=_NODE),
    _down("PlimsollBrokerDown", 'plimsoll_broker_up{node="n1"}', after=2, labels=_NODE),
    Case(
        "PlimsollNodeSilent",
        4,
        # A placer that lost NATS takes no part.
        {
            _SILENT % "a": f"1x{HOUR}",
            _SILENT % "b": f"1x{HOUR}",
            _REACHES % "a": f"0x{HOUR}",
            _REACHES % "b": f"1x{HOUR}",
        },
        (
            {_SILENT % "a": f"0x{HOUR}", _REACHES % "a": f"1x{HOUR}"},
            {_SILENT % "a": f"1x{HOUR}", _REACHES % "a": f"0x{HOUR}"},  # NATS is away
            {_SILENT % "a": f"1x{HOUR}", _SILENT % "b": f"0x{HOUR}", _REACHES % "b": f"1x{HOUR}"},
        ),
        _NODE,
    ),
    Case(
        "PlimsollReportsLate",
        25,
        {'plimsoll_placer_late_reports_total{node="n1"}': f"0+1x{HOUR}"},
        ({'plimsoll_placer_late_reports_total{node="n1"}': f"0x10 5x{HOUR}"},),  # what an outage left
        _NODE,
    ),
    _count("PlimsollForeignMonitor", 'plimsoll_foreign_reports_total{node="n1"}', _NODE),
    Case(
        "PlimsollGpuFatal",
        1,
        {_HEALTH % "fatal": f"1x{HOUR}"},
        ({_HEALTH % "fatal": f"0x{HOUR}", _HEALTH % "degraded": f"1x{HOUR}"},),
        _GPU,
    ),
    _gauge("PlimsollGpuDegraded", _HEALTH % "degraded", after=2, labels=_GPU),
    _gauge("PlimsollGpuPressure", 'plimsoll_gpu_pressure{node="n1", gpu="g"}', after=2, labels=_GPU),
    _down(
        "PlimsollAlertsNotTaken",
        'plimsoll_alerts_alertmanager_up{alertmanager="http://a"}',
        after=5,
        labels={"alertmanager": "http://a"},
    ),
    Case(
        "PlimsollMeasuredSlowly",
        30,
        _buckets(_NVML, 'node="n1", call="a"', 90, 10),
        (_buckets(_NVML, 'node="n1", call="a"', 1000, 1),),
        _NODE,
    ),
    _gauge("PlimsollLedgerDrifts", "plimsoll_placer_drift_bytes", after=15),
    _count("PlimsollEventsDropped", "plimsoll_placer_unpublished_total", {}),
    Case("PlimsollDecisionsSlow", 30, _buckets(_DECISION, "", 90, 10), (_buckets(_DECISION, "", 1000, 1),)),
    Case(
        "PlimsollBindsFail",
        25,
        {_REFUSED: f"0+6x{HOUR}"},
        ({_REFUSED: f"3x{HOUR}"}, {'plimsoll_placer_bind_failures_total{result="gone"}': f"0+60x{HOUR}"}),
    ),
    _gauge(
        "PlimsollPodsGivenUp",
        'plimsoll_placer_waiting_pods{place="given_up"}',
        after=10,
        labels={"place": "given_up"},
    ),
    _gauge("PlimsollPodsWaitLong", _PARKED, after=60, labels={"place": "parked"}),
    _count("PlimsollLimitUnenforced", f"plimsoll_hook_unenforced_total{{{CONTAINER}}}", OF_CONTAINER),
    _count("PlimsollLimitViolated", f"plimsoll_hook_violated_total{{{CONTAINER}}}", OF_CONTAINER),
    _count("PlimsollAllocationsDenied", f"plimsoll_hook_denied_total{{{CONTAINER}}}", OF_CONTAINER),
    _count("PlimsollShareUnmet", f"plimsoll_hook_share_unmet_total{{{CONTAINER}}}", OF_CONTAINER),
    _gauge(
        "PlimsollMemoryWaitLong",
        f'plimsoll_hook_waiting{{{CONTAINER}, gpu="g"}}',
        after=15,
        labels={**OF_CONTAINER, "gpu": "g"},
    ),
    Case(
        "PlimsollCertificateEnds",
        30,
        {"plimsoll_webhook_certificate_expiry_timestamp_seconds": f"80000x{HOUR}"},
        (
            {"plimsoll_webhook_certificate_expiry_timestamp_seconds": f"200000x{HOUR}"},
            {"plimsoll_webhook_certificate_expiry_timestamp_seconds": f"0x{HOUR}"},  # none is served yet
        ),
    ),
    Case(
        "PlimsollAuthorityFails",
        30,
        {"plimsoll_webhook_authority_failures_total": f"0+1x{HOUR}"},
        ({"plimsoll_webhook_authority_failures_total": f"0x10 2x{HOUR}"},),
    ),
    _gauge("PlimsollPoolGpuLost", "plimsoll_pool_lost_gpus", after=5),
)
