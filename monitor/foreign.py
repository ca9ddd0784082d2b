"""Other monitors under this node's name: their epochs in the stream, and their reports while this one runs.

Readers take the reports of the greatest epoch. So a monitor begins after every epoch in the stream, whoever published
it. While both run it does not outbid another monitor, because the other would do the same without end. It names the
other instead: which of two machines has the right name, only people know. Once the other one is silent for three
heartbeats, it has ended, and this one begins after its epoch.

What always holds: the server never sends a monitor its own reports (`no_echo`), so listening costs nothing while
there is no other monitor.
"""

import json
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.js.errors import NotFoundError

from plimsoll.bus.subjects import STREAM, node_token
from plimsoll.envelope import largest_epoch
from plimsoll.events import LARGEST, Foreign
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.part.ending import heed_cancellation

BATCH: Final = 256
"""Messages of one request to the stream: 2 MB of reports, and an answer within some 10 ms."""

ANSWER_S: Final = 10.0
"""A server on a busy disk answers within a second; after this time an answer counts as lost."""

FOREIGN_EVERY_S: Final = 600.0
"""While another monitor reports under this node's name, the log and an event name it at this interval, in seconds.

They also name it once its epoch passes ours, because from then on readers drop this monitor's reports.
"""

ENDED_HEARTBEATS: Final = 3
"""Another monitor that is silent for this many of our heartbeats has ended; readers call nodes silent by this
rule."""

_GET: Final = f"$JS.API.DIRECT.GET.{STREAM}"
_NO_RESPONDERS: Final = "503"


class _Gpu(msgspec.Struct, frozen=True):
    uuid: GpuUuid


class _State(msgspec.Struct, frozen=True):
    epoch: int
    gpus: tuple[_Gpu, ...] = ()
    omitted: bool = False


class _Data(msgspec.Struct, frozen=True):
    state: _State | None = None


class _Report(msgspec.Struct, frozen=True):
    """The part of a report that names its monitor. Subscribers sort by `sequence`, placers by `data`."""

    data: _Data
    sequence: str | None = None


_REPORTS: Final = msgspec.json.Decoder(_Report)


@dataclass(frozen=True, slots=True)
class ForeignReport:
    """A report that another monitor published under this node's name."""

    epoch: int
    gpus: tuple[GpuUuid, ...]


class ForeignNaming:
    """Decides when another monitor is named in the log and by an event."""

    def __init__(self, node: NodeName) -> None:
        """Begin on the monitor's node, without any named monitor."""
        self._node = node
        self._named_s = -math.inf
        self._was_greater = False  # the epoch of the other monitor, when it was named
        self._last_s = -math.inf  # when the other one last reported
        self._epoch = 0  # its greatest

    def event(
        self, report: ForeignReport, epoch: int, gpus: tuple[GpuUuid, ...], now_s: float
    ) -> Foreign | None:
        """The event that names the other monitor, where it is due.

        Args:
            report: the other monitor's.
            epoch: ours.
            gpus: ours.
            now_s: the time.
        """
        self._last_s, self._epoch = now_s, max(self._epoch, report.epoch)
        is_greater = report.epoch > epoch
        if now_s - self._named_s < FOREIGN_EVERY_S and is_greater <= self._was_greater:
            return None
        self._named_s, self._was_greater = now_s, is_greater
        effect = "this monitor's reports" if is_greater else "the other monitor's reports"
        return Foreign(
            node=self._node,
            epoch=epoch,
            gpus=gpus,
            foreign_epoch=report.epoch,
            foreign_gpus=report.gpus,
            reason=f"two monitors report as this node; readers drop {effect}; stop one, or correct its node's name",
        )

    def outlived(self, epoch: int, now_s: float, heartbeat_s: float) -> int | None:
        """The other monitor's epoch, where readers drop our reports for it and it has ended; else None.

        Args:
            epoch: ours.
            now_s: the time.
            heartbeat_s: ours.
        """
        has_ended = now_s - self._last_s > ENDED_HEARTBEATS * heartbeat_s
        return self._epoch if has_ended and self._epoch > epoch else None


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A place in the stream up to which this node's reports are known.

    Attributes:
        stream: when the stream was made, as text: a stream that is made anew counts from 1 again.
        seq: the number of the last message in question.
        epoch: the greatest one up to there, ours included.
    """

    stream: str = ""
    seq: int = 0
    epoch: int = 0


def read_foreign(body: bytes) -> ForeignReport | None:
    """The epoch and GPUs of a report with a state; None for anything else, also for a damaged message.

    An epoch that readers refuse (see `largest_epoch`) counts as the greatest one that they took before now. So our
    next epoch passes every epoch that a reader may know, and is not refused itself.
    """
    try:
        report = _REPORTS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    state = report.data.state
    if state is None or state.omitted:  # a report with this epoch's state stands before it
        return None
    digits = (report.sequence or "").partition(".")[0]
    # The greatest number of a report has 16 digits; any more only make an epoch that is refused in any case.
    sorted_by = int(digits[:16]) if digits.isascii() and digits.isdecimal() else 0
    known = min(max(state.epoch, sorted_by), LARGEST, largest_epoch(time.time()) - 1)
    return ForeignReport(known, tuple(gpu.uuid for gpu in state.gpus))


async def greatest_epoch(client: Client, node: NodeName, after: int) -> tuple[int, int]:
    """The greatest epoch of this node's reports in the stream.

    Args:
        client: connected.
        node: this node.
        after: number of a message in the stream; only later ones are read.

    Returns:
        The epoch, 0 if there is none; and the number of the last message that was read, at least `after`.

    Raises:
        NotFoundError: the stream gives no messages directly: an operator made it without `allow_direct`.
        TimeoutError, nats.errors.Error: no answer.
    """
    subject = f"plimsoll.v1.*.*.{node_token(node)}"
    greatest = 0
    async with _inbox(client) as answers:
        while True:
            heed_cancellation()
            request = {"seq": after + 1, "next_by_subj": subject, "batch": BATCH}
            await client.publish(_GET, json.dumps(request).encode(), reply=answers.subject)
            before = after
            while (message := await answers.next_msg(timeout=ANSWER_S)).headers:
                if message.headers.get("Status") is not None:
                    break
                after = int(message.headers["Nats-Sequence"])
                if (report := read_foreign(message.data)) is not None:
                    greatest = max(greatest, report.epoch)
                if "Nats-Num-Pending" not in message.headers:
                    break  # servers before 2.11 know no batches: this was the only message
            if (message.headers or {}).get("Status") == _NO_RESPONDERS:
                raise NotFoundError
            if after == before:
                return greatest, after


@asynccontextmanager
async def _inbox(client: Client) -> AsyncIterator[Subscription]:
    subscription = await client.subscribe(client.new_inbox())
    try:
        yield subscription
    finally:
        await subscription.unsubscribe()
