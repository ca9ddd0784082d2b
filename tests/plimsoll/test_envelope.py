"""Events on the wire."""

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.bus.subjects import node_token, task_subject
from plimsoll.envelope import decode_event, decode_report, encode, fact_id
from plimsoll.events import SLOWEST_HEARTBEAT_S, Report
from plimsoll.ids import NodeName
from plimsoll.part.errors import InputError
from tests.placer.core.worlds import gpu, state, task


def message() -> bytes:
    """A whole report in its published form."""
    loaded = task("p", "g", 5)
    report = Report(state=state("n1", gpu("g", loaded)), task=loaded)
    return encode("task.loaded", "id-1", "/nodes/n1", "2026-01-01T00:00:00Z", report)


def test_a_report_reads_back_as_it_was() -> None:
    """A report decodes to the same report."""
    report = decode_report(message())
    assert report.state.gpus[0].tasks == (report.task,)


def test_the_envelope_is_cloudevents() -> None:
    """An event has CloudEvents' required attributes in structured JSON, so any consumer can read it."""
    event = json.loads(message())
    assert {name: event[name] for name in ("specversion", "id", "source", "type", "subject")} == {
        "specversion": "1.0",
        "id": "id-1",
        "source": "/nodes/n1",
        "type": "dev.plimsoll.task.loaded.v1",
        "subject": "g",
    }


@given(st.integers(0, 600), st.binary(max_size=4))
def test_a_damaged_event_is_refused_and_never_crashes(position: int, junk: bytes) -> None:
    """For any damage to the bytes the reader gets a report or an `InputError`, and nothing else."""
    good = message()
    damaged = good[:position] + junk + good[position + len(junk) + 1 :]
    with contextlib.suppress(InputError):
        assert decode_report(damaged).state.epoch >= 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"used_bytes": -1}, "used_bytes"),
        ({"idle_pct": 101.0}, "idle_pct"),
        ({"usable_bytes": 0}, "usable_bytes"),
        ({"usable_bytes": 10**400}, "usable_bytes"),
        ({"used_bytes": 10**400}, "used_bytes"),
    ],
)
def test_impossible_reports_are_refused_by_field(change: dict[str, float], field: str) -> None:
    """The refusal of a report that no real GPU can have names the wrong field."""
    event = json.loads(message())
    event["data"]["state"]["gpus"][0] |= change
    with pytest.raises(InputError, match=field):
        decode_report(json.dumps(event).encode())


@pytest.mark.parametrize(
    "uuid", ["", " ", "GPU-a,GPU-b", 'GPU-"a"', "GPU-'a'", "GPU-a\n", "-a", "GPU-ä", "G" * 96, "G" * 500_000]
)
def test_a_text_that_is_no_uuid_is_refused(uuid: str) -> None:
    """The refusal names place, value and remedy, and it is short even where the value is not."""
    event = json.loads(message())
    event["data"]["state"]["gpus"][0]["uuid"] = uuid
    with pytest.raises(
        InputError, match=r"state\.gpus\[0\]\.uuid: .* is no UUID of a GPU; give NVML's"
    ) as refused:
        decode_report(json.dumps(event).encode())
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "uuid",
    ["GPU-5a1c0d2e-1111-2222-3333-444455556666", "MIG-GPU-5a1c0d2e-1111-2222-3333-444455556666/7/0", "g"],
)
def test_uuids_of_nvml_are_taken(uuid: str) -> None:
    """UUIDs of GPUs and of MIG instances pass, in NVML's earlier form too."""
    event = json.loads(message())
    event["data"]["state"]["gpus"][0]["uuid"] = uuid
    assert decode_report(json.dumps(event).encode()).state.gpus[0].uuid == uuid


@pytest.mark.parametrize("model", ["", "L4,T4", "L4\n", "L" * 96])
def test_a_text_that_is_no_model_is_refused(model: str) -> None:
    """No pod could name such a model in `gpu-model`, where commas separate models."""
    event = json.loads(message())
    event["data"]["state"]["gpus"][0]["model"] = model
    with pytest.raises(
        InputError, match=r"state\.gpus\[0\]\.model: .* is no model of a GPU; give NVML's name"
    ):
        decode_report(json.dumps(event).encode())


@pytest.mark.parametrize("node", ["", "N1", "n1/x", "n 1", "n_1", "-n", "n" * 254])
def test_a_text_that_is_no_node_is_refused(node: str) -> None:
    """A node's name is RFC 1123's, so it is one token on the bus and the part before the slash in Redis."""
    event = json.loads(message())
    event["data"]["state"]["node"] = node
    with pytest.raises(InputError, match=r"state\.node: .* is no name of a node; give the node's name"):
        decode_report(json.dumps(event).encode())


def test_an_epoch_that_no_monitor_can_have_reached_is_refused() -> None:
    """An epoch above one start a second since 1970 is refused, so no report can take the last epoch for ever."""
    event = json.loads(message())
    event["data"]["state"]["epoch"] = 1_800_000_000
    body = json.dumps(event).encode()
    assert decode_report(body, now_s=1_800_000_000.5).state.epoch == 1_800_000_000
    with pytest.raises(InputError, match=r"state\.epoch: 1800000000 cannot be; give 1 to 1799999999"):
        decode_report(body, now_s=1_799_999_999.5)
    event["data"]["state"]["epoch"] = 2**53
    with pytest.raises(InputError, match=r"state\.epoch"):
        decode_report(json.dumps(event).encode())


@pytest.mark.parametrize("field", ["used_bytes", "peak_bytes"])
@pytest.mark.parametrize("value", [-1, 10**400])
def test_impossible_tasks_are_refused_by_field(field: str, value: int) -> None:
    """Impossible bytes of a task are refused like a GPU's, as they enter the same sums."""
    event = json.loads(message())
    event["data"]["state"]["gpus"][0]["tasks"][0][field] = value
    with pytest.raises(InputError, match=rf"tasks\[\d+\]\.{field}"):
        decode_report(json.dumps(event).encode())


def test_a_gpu_that_stands_twice_is_refused() -> None:
    """A GPU that is listed twice is refused: it could be given twice to a container that requests two."""
    event = json.loads(message())
    event["data"]["state"]["gpus"] *= 2
    with pytest.raises(InputError, match="stands twice"):
        decode_report(json.dumps(event).encode())


@pytest.mark.parametrize("place", [("later",), ("data", "later"), ("data", "state", "later")])
def test_brackets_without_end_are_refused(place: tuple[str, ...]) -> None:
    """An event nested deeper than any stack is refused like any damaged one."""
    event = json.loads(message())
    inner = event
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = "deep"
    deep = json.dumps(event).replace('"deep"', "[" * 100_000 + "]" * 100_000)
    with pytest.raises(InputError, match="damaged"):
        decode_report(deep.encode())


def test_another_specification_is_refused() -> None:
    """Only CloudEvents 1.0 is read."""
    with pytest.raises(InputError, match="specversion"):
        decode_event(message().replace(b'"1.0"', b'"0.3"'))


def test_unknown_fields_are_tolerated() -> None:
    """Unknown fields are ignored, as a newer publisher may send more."""
    event = json.loads(message())
    event["data"]["state"]["later"] = 1
    assert decode_report(msgspec.json.encode(event)).state.node == "n1"


@pytest.mark.parametrize("value", [0, -1, 3601, 10**400])
def test_impossible_heartbeats_are_refused_by_field(value: int) -> None:
    """A heartbeat out of range is refused by its field: it would make a node silent at once, or never."""
    event = json.loads(message())
    event["data"]["state"]["heartbeat_s"] = value
    with pytest.raises(InputError, match=r"state\.heartbeat_s"):
        decode_report(json.dumps(event).encode())


def test_a_report_without_a_heartbeat_counts_as_the_slowest() -> None:
    """The heartbeat of a report that does not name it may be any, so the slowest one counts."""
    event = json.loads(message())
    del event["data"]["state"]["heartbeat_s"]
    assert decode_report(msgspec.json.encode(event)).state.heartbeat_s == SLOWEST_HEARTBEAT_S


def test_the_same_fact_has_the_same_id_and_another_fact_another() -> None:
    """Parts are kept apart, so that ("ab", "c") is not ("a", "bc")."""
    assert fact_id("boot", 12, "loaded", 1) == fact_id("boot", 12, "loaded", 1)
    assert fact_id("ab", "c") != fact_id("a", "bc")
    assert fact_id("boot", 12, "loaded", 1) != fact_id("boot", 12, "loaded", 2)


def test_a_node_name_is_one_subject_token() -> None:
    """Dots in node names do not make subject levels."""
    assert node_token(NodeName("gpu-1.rack.example")) == "gpu-1_rack_example"
    assert task_subject("started", NodeName("a.b")) == "plimsoll.v1.task.started.a_b"
