"""Reads the placer's state as a reader of `/v1/state` does."""

import msgspec

from placer.api.node_rows import NodeRows
from placer.api.state import StateReader
from placer.decide import Decider
from plimsoll.placer_api.http import State


def reader_of(decider: Decider) -> StateReader:
    """A reader of this decider's nodes, without local pods."""
    return StateReader(NodeRows(decider), decider.ledger)


async def read(reader: StateReader) -> State:
    """The state, decoded."""
    return msgspec.json.decode(b"".join([piece async for piece in reader.pieces()]), type=State)
