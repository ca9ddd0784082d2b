"""The node's state and its thresholds."""

import pytest
from msgspec.structs import replace

from monitor.core.idle import IdleMeters
from monitor.core.lifecycle import NO_OWNER, Owner, TaskKey, begin
from monitor.core.node_state import Thresholds, gpus, is_state_due
from plimsoll.ids import GpuUuid, PodUid, ProcessKey
from plimsoll.nvml.readings import GpuReading

GIB = 1024**3
THRESHOLDS = Thresholds(idle_pct=10, memory_bytes=GIB // 4, heartbeat_s=60)


def reading(**changes: int) -> GpuReading:
    """A 24 GiB card with 1 GiB reserved."""
    fields = {"index": 0, "total_bytes": 24 * GIB, "reserved_bytes": GIB, "used_bytes": 0, **changes}
    return GpuReading(uuid=GpuUuid(f"GPU-{fields['index']}"), model="card", mig_parent=None, **fields)


@pytest.mark.parametrize(
    ("changes", "usable_bytes", "used_bytes"),
    [
        ({}, 23 * GIB, 0),
        ({"reserved_bytes": 0}, 24 * GIB, 0),
        ({"used_bytes": 30 * GIB}, 23 * GIB, 23 * GIB),
        ({"used_bytes": -1}, 23 * GIB, 0),
    ],
)
def test_used_never_passes_usable(changes: dict[str, int], usable_bytes: int, used_bytes: int) -> None:
    """Usable is total less reserved, and used never exceeds it."""
    (gpu,) = gpus([reading(**changes)], {}, ())
    assert (gpu.usable_bytes, gpu.used_bytes) == (usable_bytes, used_bytes)


def test_every_gpu_has_the_overcommit_ratio() -> None:
    """Every GPU has the node's ratio, which is 1 by default."""
    assert [gpu.overcommit_ratio for gpu in gpus([reading(), reading(index=1)], {}, (), 1.5)] == [1.5, 1.5]
    assert gpus([reading()], {}, ())[0].overcommit_ratio == 1.0


def test_a_gpu_without_usable_memory_is_left_out() -> None:
    """A GPU with nothing usable is left out, as every reader refuses a state with one."""
    assert gpus([reading(reserved_bytes=25 * GIB)], {}, ()) == ()


@pytest.mark.parametrize(
    ("used_bytes", "idle_pct", "silent_s", "due"),
    [
        (0, 50.0, 0.0, False),
        (GIB // 4 - 1, 59.9, 59.9, False),
        (GIB // 4, 50.0, 0.0, True),
        (0, 60.0, 0.0, True),
        (0, 40.0, 0.0, True),
        (0, 50.0, 60.0, True),
    ],
)
def test_a_state_is_due_when_it_moved_far_or_silence_was_long(
    used_bytes: int, idle_pct: float, silent_s: float, *, due: bool
) -> None:
    """A state is due when idle average or memory moved past the threshold, or a heartbeat is due; otherwise not."""
    last = gpus([reading()], {GpuUuid("GPU-0"): 50.0}, ())
    now = gpus([reading(used_bytes=used_bytes)], {GpuUuid("GPU-0"): idle_pct}, ())
    assert is_state_due(last, now, silent_s, THRESHOLDS) is due


def test_a_first_state_and_a_lost_gpu_are_due() -> None:
    """A first state is due, and so is one with another set of GPUs."""
    one, two = gpus([reading()], {}, ()), gpus([reading(), reading(index=1)], {}, ())
    assert is_state_due(None, one, 0, THRESHOLDS)
    assert is_state_due(two, one, 0, THRESHOLDS)


def test_an_owner_found_later_is_due() -> None:
    """A task is published again once its pod is known, as its memory is unattributed until then."""
    key = TaskKey(ProcessKey(1, 1), GpuUuid("GPU-0"))
    life = begin(key, NO_OWNER, 5, 0.0, before=None).life
    last = gpus([reading()], {}, (life,))
    found = gpus([reading()], {}, (replace(life, owner=Owner(PodUid("pod"))),))
    assert not is_state_due(last, last, 0, THRESHOLDS)
    assert is_state_due(last, found, 0, THRESHOLDS)


def test_memory_traffic_is_reported_where_the_driver_measures_it() -> None:
    """A GPU whose memory was busy for a quarter of the time says so; one without samples says nothing, and not 0."""
    meters = IdleMeters(60.0)
    second_us = 1_000_000
    meters.add({GpuUuid("GPU-0"): [(second_us, 25.0), (2 * second_us, 25.0)], GpuUuid("GPU-1"): []})
    found = gpus([reading(), reading(index=1)], {}, (), memory_busy_pct=meters.busy_pct)
    assert [gpu.memory_busy_pct for gpu in found] == [25.0, None]
