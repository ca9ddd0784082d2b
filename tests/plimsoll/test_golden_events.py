"""A published message of each sort: its bytes, and how other libraries read them.

`GOLDEN=write pytest tests/plimsoll/test_golden_events.py` writes the files anew. Look at the difference: a subscriber
reads these bytes.
"""

import json
import os
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.asyncapi import KINDS, EventKind
from plimsoll.envelope import decode_event, decode_report, encode, event_type, sequence
from plimsoll.events import (
    LARGEST,
    Data,
    Foreign,
    Gpu,
    Limit,
    NodeState,
    Phase,
    Placement,
    PoolChange,
    Report,
    Task,
)
from plimsoll.gpu_events import Condition, GpuInfo, HealthChange, HealthClass, Link, NodeInfo, Pressure
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from tests import cloudevents

GOLDEN = Path(__file__).parent / "golden"
MANY = GOLDEN / "many"
TIME = "2026-01-01T00:00:00.5Z"
NODE, UUID = NodeName("node-1.test"), GpuUuid("GPU-5a1c0d2e-1111-2222-3333-444455556666")
POD, MAIN = PodUid("0b7e8f3c-1d2a-4c5b-9e6f-7a8b9c0d1e2f"), ContainerName("main")


def report(phase: Phase | None) -> Report:
    """A report with a task in this phase; None: of a state alone, with a task of nobody."""
    task = Task(
        pid=71,
        start_ticks=900,
        gpu=UUID,
        phase=phase or Phase.LOADED,
        used_bytes=1 << 30,
        peak_bytes=1 << 31,
        pod=POD if phase else None,
        container=MAIN if phase else None,
    )
    gpu = Gpu(
        uuid=UUID,
        index=0,
        model="NVIDIA L4",
        usable_bytes=24 << 30,
        used_bytes=1 << 30,
        idle_pct=62.5,
        tasks=() if phase is Phase.EXITED else (task,),
    )
    state = NodeState(node=NODE, epoch=3, seq=41, time=TIME, gpus=(gpu,), heartbeat_s=60)
    return Report(state=state, task=task if phase else None)


def data(kind: EventKind) -> Data:  # noqa: PLR0911 - one for each sort
    """Data for an event of this sort."""
    group, _, what = kind.what.partition(".")
    if kind.data is Report:
        return report(Phase(what) if group == "task" else None)
    if kind.data is Foreign:
        return Foreign(
            node=NODE,
            epoch=3,
            gpus=(UUID,),
            foreign_epoch=4,
            foreign_gpus=(GpuUuid("GPU-b"),),
            reason="text",
        )
    if kind.data is HealthChange:
        condition = Condition(
            what="xid",
            health=HealthClass.FATAL,
            since=TIME,
            text="XID 79: the GPU has fallen off the bus",
            xid=79,
        )
        return HealthChange(
            node=NODE,
            gpu=UUID,
            index=0,
            model="NVIDIA L4",
            health=HealthClass.FATAL,
            since=TIME,
            conditions=(condition,),
            before=HealthClass.HEALTHY,
        )
    if kind.data is NodeInfo:
        links = (Link(gpu=GpuUuid("GPU-b"), path="PIX", nvlinks=4),)
        info = GpuInfo(
            uuid=UUID,
            index=0,
            model="NVIDIA L4",
            pci="00000000:17:00.0",
            numa=0,
            cores="0-3",
            links=links,
        )
        labels = {"nvidia.com/gpu.family": "ampere"}
        return NodeInfo(node=NODE, heartbeat_s=60, driver="570.124.06", gpus=(info,), labels=labels)
    if kind.data is Pressure:
        return Pressure(
            node=NODE,
            gpu=UUID,
            short=True,
            since=TIME,
            usable_bytes=24 << 30,
            used_bytes=23 << 30,
            free_bytes=1 << 30,
            limit_bytes=6 << 28,
        )
    if kind.data is Limit:
        return Limit(node=NODE, gpu=None if what == "unenforced" else UUID, pod=POD, container=MAIN)
    if kind.data is PoolChange:
        return PoolChange(node=NODE, gpu=UUID, reservation=POD, pods=(POD,))
    return Placement(
        namespace="team-a",
        name="trainer",
        pod=POD,
        node=None if what == "unplaceable" else NODE,
        reason="" if what == "placed" else "text",
    )


def message(kind: EventKind) -> bytes:
    """An event of this sort, as published."""
    source = f"/nodes/{NODE}" if kind.of_node else "/placer"
    return encode(kind.what, f"id-of-{kind.what}", source, TIME, data(kind))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.what)
def test_a_message_is_what_it_was_and_what_strangers_read(kind: EventKind) -> None:
    """The bytes are the golden ones, and CloudEvents' SDK and the published schema read in them what we wrote."""
    path = GOLDEN / f"{kind.what}.json"
    if os.environ.get("GOLDEN") == "write":
        path.write_bytes(message(kind) + b"\n")
    golden = path.read_bytes().rstrip()
    assert golden == message(kind)
    event, ours = cloudevents.read(golden), decode_event(golden)
    assert (event.get_id(), event.get_source()) == (ours.id, ours.source)
    assert (event.get_type(), event.get_subject()) == (event_type(kind.what), ours.subject)
    assert event.get_extension("sequence") == ours.sequence
    assert event.get_data() == json.loads(msgspec.json.encode(data(kind)))
    assert None not in json.loads(golden).values()


def test_golden_messages_are_of_known_sorts() -> None:
    """Each file is the message of a sort that is published."""
    assert {path.stem for path in GOLDEN.glob("*.json")} == {kind.what for kind in KINDS}


def of_many(what: str) -> Report:
    """A report of a node with many tasks: one of many starts at once, or a state with many processes in an entry."""
    if what == "task.started":
        state = NodeState(node=NODE, epoch=3, seq=40, time=TIME, gpus=(), heartbeat_s=60, omitted=True)
        return replace(report(Phase.STARTED), state=state)
    full = report(None)
    [gpu] = full.state.gpus
    gpu = replace(gpu, tasks=(replace(gpu.tasks[0], processes=40),))
    return replace(full, state=replace(full.state, gpus=(gpu,)))


@pytest.mark.parametrize("what", ["task.started", "node.state"])
def test_messages_of_a_node_with_many_tasks_are_what_they_were(what: str) -> None:
    """Strangers, our schemas and readers of newer states alone understand them."""
    path = MANY / f"{what}.json"
    body = encode(what, f"id-of-{what}", f"/nodes/{NODE}", TIME, of_many(what))
    if os.environ.get("GOLDEN") == "write":
        path.write_bytes(body + b"\n")
    assert path.read_bytes().rstrip() == body
    assert cloudevents.read(body).get_data() == json.loads(msgspec.json.encode(of_many(what)))
    assert decode_report(body) == of_many(what)


NUMBERS = st.tuples(st.integers(1, LARGEST), st.integers(1, LARGEST))


@given(st.lists(NUMBERS, max_size=20))
def test_sequences_sort_as_the_pairs_do(pairs: list[tuple[int, int]]) -> None:
    """For any epochs and numbers the order of the texts is that of the pairs, as the extension demands."""
    random.Random(0).shuffle(pairs)  # noqa: S311 - repeatable, not secret
    assert sorted(sequence(*pair) for pair in pairs) == [sequence(*pair) for pair in sorted(pairs)]
    for pair in pairs:
        assert tuple(map(int, sequence(*pair).split("."))) == pair
