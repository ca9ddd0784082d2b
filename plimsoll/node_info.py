"""Reads `node.info` events: the hardware of a node, see `plimsoll.gpu_events.NodeInfo`."""

import re
import time
from datetime import datetime
from typing import Final

import msgspec

from plimsoll.cpus import parse_cpus
from plimsoll.envelope import decode_event
from plimsoll.gpu_events import NodeInfo
from plimsoll.ids import NODE_PATTERN, UUID_PATTERN
from plimsoll.part.errors import InputError
from plimsoll.part.times import check_time

MOST_GPUS: Final = 128
"""The most GPUs and MIG instances of a node: eight cards have 56 instances."""

_FIELD: Final = "data.gpus"


def decode_info(message: bytes) -> tuple[datetime, NodeInfo]:
    """The time of an event, in UTC by the node's clock, and the hardware in it.

    Raises:
        InputError: the message is damaged, or no monitor can have sent it. Terminate the message.
    """
    event = decode_event(message)
    try:
        info = msgspec.json.decode(event.data, type=NodeInfo)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        start = message[:80].decode("utf-8", "replace")
        raise InputError(
            "event", start, f"is damaged ({error})", "publish node.info as docs/events.md says"
        ) from error
    _check(info)
    return check_time("time", event.time, time.time()), info


def _check(info: NodeInfo) -> None:
    if not re.fullmatch(NODE_PATTERN, info.node):
        remedy = "give the node's name in Kubernetes: 1 to 253 lower-case letters, digits, '-' and '.'"
        raise InputError("data.node", info.node, "is no name of a node", remedy)
    uuids = {gpu.uuid for gpu in info.gpus}
    if len(uuids) < len(info.gpus) or len(uuids) > MOST_GPUS:
        remedy = f"list each GPU once, at most {MOST_GPUS}"
        raise InputError(_FIELD, len(info.gpus), "cannot be the GPUs of a node", remedy)
    for gpu in info.gpus:
        if not re.fullmatch(UUID_PATTERN, gpu.uuid):
            raise InputError(f"{_FIELD}[].uuid", gpu.uuid, "is no UUID of a GPU", "give NVML's UUID")
        parse_cpus(gpu.cores, f"{_FIELD}[{gpu.uuid}].cores")
