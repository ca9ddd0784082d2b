"""The checks of NATS: the login, the stream, the clock, and the latest report of every node.

What always holds: the age of a report is taken by the clock of NATS alone, as the placer takes it. So a wrong clock
on this machine makes no node silent.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.js.api import DeliverPolicy

from plimsoll.bus.access import BusAccess
from plimsoll.bus.consumers import kept_messages
from plimsoll.bus.subjects import EVENTS, REPORTS, STREAM
from plimsoll.envelope import decode_event, decode_report
from plimsoll.events import SILENT_HEARTBEATS, NodeState
from plimsoll.gpu_events import HealthClass
from plimsoll.ids import NodeName
from plimsoll.part.causes import RIGHTS, cause_of
from plimsoll.part.errors import InputError
from plimsoll_cli.doctor.finding import Finding, failed, failed_by, listed, ok, skipped, warning
from plimsoll_cli.events import NoEventsError, connected

LOGIN: Final = "--nats-url or PLIMSOLL_NATS_URL"
REQUEST_S: Final = 5.0

CLOCK_S: Final = 10.0
"""Seconds by which clocks may differ: those of machines with NTP differ by less than one."""

LATE_S: Final = 120.0
"""A report stored this many seconds after it was made comes from a slow clock, or has waited in an outbox."""

EVENT_BYTES: Final = 256 * 1024
"""Bytes that a message must be allowed to have: a report of 1000 tasks on 16 GPUs is not longer."""

MONITORS: Final = (
    "see `kubectl get pods -A -o wide -l app=plimsoll-monitor`, and `kubectl logs` of the monitor there"
)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A node's report.

    Attributes:
        stored: when NATS stored it, by the clock of NATS.
        made: when the monitor made it, by the node's clock.
    """

    state: NodeState
    stored: datetime
    made: datetime


async def bus(url: str, access: BusAccess) -> AsyncIterator[Finding]:
    """The findings, one after another; none after the first failure that makes the others impossible."""
    if not url:
        yield skipped("nats", "no address of NATS was given", f"give {LOGIN}, and the placer's user in it")
        return
    failures: list[Exception] = []
    try:
        client = await connected(url, access, "plimsoll-doctor", failures)
    except (InputError, NoEventsError) as error:
        yield failed_by("nats", error)
        return
    try:
        version = str(client.connected_server_version).removeprefix("<nats server v").removesuffix(">")
        yield ok("nats", f"answers, version {version}")
        async for finding in _stream(client, failures):
            yield finding
    finally:
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            await client.close()


async def _stream(client: Client, failures: list[Exception]) -> AsyncIterator[Finding]:
    asked = datetime.now(UTC)
    try:
        answer = await client.request(f"$JS.API.STREAM.INFO.{STREAM}", b"", timeout=REQUEST_S)
    except nats.errors.NoRespondersError:
        yield failed(
            "stream", "this NATS server has no JetStream", "start it with `--jetstream`, as the chart does"
        )
        return
    except (nats.errors.Error, TimeoutError) as error:
        yield failed_by("stream", f"no answer about the stream: {_cause(error, failures)}")
        return
    answered, info = datetime.now(UTC), json.loads(answer.data)
    if "error" in info:
        remedy = (
            "start a placer or a monitor, which makes it; if they run, compare their PLIMSOLL_NATS_URL with this "
            "address, and see their logs"
        )
        yield failed(
            "stream", f"there is no stream {STREAM} ({info['error'].get('description', '')})", remedy
        )
        return
    for finding in _unfit(info["config"], client.max_payload):
        yield finding
    state = info["state"]
    yield ok("stream", f"{STREAM}, {state['messages']} events, {state['bytes'] >> 20} MiB")
    now = _moment(info["ts"])
    yield _own_clock(now, asked, answered)
    try:
        reports = await _reports(client)
    except (nats.errors.Error, TimeoutError) as error:
        yield failed_by("reports", f"reports cannot be read: {_cause(error, failures)}")
        return
    for finding in _judged(reports, now):
        yield finding


def _unfit(config: dict[str, Any], max_payload: int) -> Iterator[Finding]:
    """The settings of an operator's stream or server that keep our events out, so that nodes would fall silent."""
    if EVENTS not in config["subjects"] and ">" not in config["subjects"]:
        remedy = (
            f"`nats stream edit {STREAM} --subjects='{EVENTS}'`, or delete it, so that a monitor makes it"
        )
        yield failed("stream", f"{STREAM} does not take the subjects {EVENTS}", remedy)
    if config.get("discard") == "new":
        remedy = f"`nats stream edit {STREAM} --discard=old`"
        yield failed("stream", f"{STREAM} keeps its old messages: once it is full it takes no event", remedy)
    if 0 < (most := config.get("max_msg_size", -1)) < EVENT_BYTES:
        remedy = f"`nats stream edit {STREAM} --max-msg-size=-1`"
        yield failed("stream", f"{STREAM} takes no message above {most} bytes, and events are longer", remedy)
    if max_payload < EVENT_BYTES:
        remedy = "give max_payload in its configuration its default of 1 MB or more"
        yield failed("nats", f"it takes no message above {max_payload} bytes, and events are longer", remedy)


def _own_clock(now: datetime, asked: datetime, answered: datetime) -> Finding:
    """Compare this machine's clock with that of NATS; an answer that was long on its way proves nothing."""
    ahead_s = max((asked - now).total_seconds(), -(answered - now).total_seconds(), 0.0)
    if ahead_s <= CLOCK_S:
        return ok("clock", "this machine's clock and that of NATS agree")
    way = "ahead of" if asked > now else "behind"
    remedy = "see `timedatectl` on both, and start chrony or systemd-timesyncd on the one that is wrong"
    return warning("clock", f"this machine's clock is {ahead_s:.0f} s {way} that of NATS", remedy)


def _judged(reports: dict[NodeName, _Stored], now: datetime) -> list[Finding]:
    """The findings from the latest reports; `now` is the time of NATS."""
    if not reports:
        remedy = f"start the monitor on a node with GPUs; {MONITORS}"
        return [failed("reports", "no node has ever reported, so no pod can be placed", remedy)]
    silent_s = _silent_s(reports, now)
    states = [one.state for node, one in reports.items() if node not in silent_s]
    return [
        _silence(reports, silent_s),
        *_clocks(reports),
        *_brokers(states),
        *_health(states),
    ]


def _silent_s(reports: dict[NodeName, _Stored], now: datetime) -> dict[NodeName, float]:
    """For how long each silent node has not reported, in seconds."""
    ages_s = {node: (now - one.stored).total_seconds() for node, one in reports.items()}
    return {
        node: age_s
        for node, age_s in ages_s.items()
        if age_s > SILENT_HEARTBEATS * reports[node].state.heartbeat_s
    }


def _silence(reports: dict[NodeName, _Stored], silent_s: dict[NodeName, float]) -> Finding:
    if not silent_s:
        gpus = sum(len(one.state.gpus) for one in reports.values())
        return ok("reports", f"nodes that report: {len(reports)}, with {gpus} GPUs")
    nodes = listed(f"{node} (for {age_s:.0f} s)" for node, age_s in silent_s.items())
    text = f"{len(silent_s)} of {len(reports)} nodes are silent, and nothing is placed there: {nodes}"
    return failed("reports", text, MONITORS)


def _brokers(states: list[NodeState]) -> Iterator[Finding]:
    away = [f"{state.node} (since {state.broker_away_since})" for state in states if state.broker_away_since]
    if away:
        remedy = "see the log of the pod plimsoll-broker there: running programs keep their lines, and have no shares"
        yield failed("brokers", f"no broker on {listed(away)}", remedy)


def _health(states: list[NodeState]) -> Iterator[Finding]:
    remedy = "drain the node, and reset the GPU or restart the machine (docs/events.md, health of a GPU)"
    for health, finding in ((HealthClass.FATAL, failed), (HealthClass.DEGRADED, warning)):
        ill = [
            f"{state.node} {one.gpu} ({one.reason})"
            for state in states
            for one in state.health
            if one.health is health
        ]
        if ill:
            yield finding("gpus", f"{health.value}: {listed(ill)}", remedy)


def _clocks(reports: dict[NodeName, _Stored]) -> list[Finding]:
    ahead_s = {node: (one.made - one.stored).total_seconds() for node, one in reports.items()}
    findings = []
    if fast := [f"{node} ({by_s:.0f} s)" for node, by_s in ahead_s.items() if by_s > CLOCK_S]:
        remedy = "see `timedatectl` on these nodes and on that of NATS, and start chrony or systemd-timesyncd"
        findings.append(warning("clocks", f"clocks ahead of that of NATS: {listed(fast)}", remedy))
    if slow := [f"{node} ({-by_s:.0f} s)" for node, by_s in ahead_s.items() if -by_s > LATE_S]:
        remedy = (
            "see `timedatectl` there; if the clock is right, the reports waited for NATS in the monitor's outbox: "
            "see its log"
        )
        findings.append(warning("clocks", f"reports that came late: {listed(slow)}", remedy))
    return findings


async def _reports(client: Client) -> dict[NodeName, _Stored]:
    """The newest report of each node that the stream keeps."""
    jetstream = client.jetstream(timeout=REQUEST_S)
    found: dict[NodeName, _Stored] = {}
    kept = kept_messages(jetstream, REPORTS, DeliverPolicy.LAST_PER_SUBJECT, REQUEST_S)
    async with contextlib.aclosing(kept):
        async for message in kept:
            with contextlib.suppress(InputError):  # a stranger's message
                state = decode_report(message.data).state
                made = _moment(decode_event(message.data).time)
                one = _Stored(state, message.metadata.timestamp.astimezone(UTC), made)
                known = found.get(state.node)
                if not state.is_omitted and (known is None or known.state.order < state.order):
                    found[state.node] = one
    return found


def _moment(text: str) -> datetime:
    """A time in RFC 3339, in UTC; fractions beyond microseconds are cut."""
    head, dot, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(head + dot + rest[:6]).replace(tzinfo=UTC)


def _cause(error: Exception, failures: list[Exception]) -> str:
    """NATS reports a missing right beside the request, which then only times out."""
    refused = [one for one in failures if any(text in str(one).lower() for text in RIGHTS)]
    return cause_of(refused[0] if refused else error, LOGIN)
