"""The core's small parts: journal, owner words, pages, and checks of a registration."""

import ctypes
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hook.broker.core.codec import PageNumbers, claimed_slots, counts_head, new_limits
from hook.broker.core.ids import (
    HALF,
    SlotUse,
    full_start_ticks,
    owner_word,
)
from hook.broker.core.journal import Journal
from hook.broker.core.registration import check
from plimsoll.broker.announcements import Announcement
from plimsoll.broker.pages import MAX_SLOTS, Counts, Limits, Slot
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.part.errors import InputError
from tests.announcements import announcement
from tests.hook.broker.core.registrations import GPUS, MAIN, PODS, pod

NOW_S = 1_700_000_000.0


Step = tuple[str, int]
STEPS = st.tuples(st.sampled_from(["hello", "denied", "exited"]), st.integers(0, 100))


@given(st.lists(STEPS, min_size=80, max_size=200), st.integers(16, 40))
def test_a_full_journal_stays_bounded_and_forgets_no_living_process(steps: list[Step], capacity: int) -> None:
    """The journal's bound and order hold for any number of lives, and each living process's greeting stays."""
    journal = Journal([], capacity)
    living: list[int] = []
    for pid, (what, which) in enumerate(steps):
        speaker = pid
        if what == "hello" and len(living) < 4:
            living.append(pid)
        elif living:
            speaker = living[which % len(living)]
            what = "denied" if what == "hello" else what  # noqa: PLW2901 - no room for another process
        else:
            continue
        told = _announcement(journal.next_seq, what, speaker)
        if journal.admits(told):
            journal.append(told)
        if what == "exited":
            living.remove(speaker)
        assert len(journal) <= capacity
    kept = journal.after(0)
    assert all(one.seq < other.seq for one, other in pairwise(kept))
    assert {entry.pid for entry in kept if entry.what == "hello"} >= set(living)
    complete = {entry.pid for entry in kept if entry.what == "hello"}
    assert {entry.pid for entry in kept} <= complete, "a process lost its greeting"


def test_a_journal_past_half_takes_no_denials() -> None:
    """Denials fill at most half of the capacity, so greetings and exits still find room."""
    journal = Journal([], 16)
    while journal.admits(denied := _announcement(journal.next_seq, "denied", 1)):
        journal.append(denied)
    assert len(journal) == 8
    assert journal.admits(_announcement(journal.next_seq, "hello", 2))
    assert journal.admits(_announcement(journal.next_seq, "exited", 1))


@given(st.integers(1, 2**22), st.integers(0, 2**40), st.integers(0, 2**32 - 1))
def test_a_start_time_is_whole_again(own_pid: int, start_ticks: int, age_ticks: int) -> None:
    """Owner word and uptime give the start time of any process younger than 2³² ticks."""
    assert full_start_ticks(owner_word(own_pid, start_ticks), start_ticks + age_ticks) == start_ticks
    assert owner_word(own_pid, start_ticks) % HALF == own_pid


@given(
    st.dictionaries(st.integers(0, MAX_SLOTS - 1), st.integers(1, 2**64 - 1), max_size=20),
    st.integers(0, 2**17),
)
def test_claimed_slots_are_read_whatever_the_files_length(owners: dict[int, int], length: int) -> None:
    """For a file of any length the claimed slots in it are found with their numbers, without an error."""
    counts = Counts.from_buffer_copy(counts_head().ljust(len(bytes(Counts())), b"\0"))
    for slot, owner in owners.items():
        counts.slots[slot].owner = owner
        counts.slots[slot].used_bytes[1] = slot
        counts.slots[slot].denied_count = 3
        counts.slots[slot].changed_ns = 4
    whole = bytes(counts)
    end = Counts.slots.offset
    found = claimed_slots(whole[:length], 2)
    size = ctypes.sizeof(Slot)
    inside = sorted(slot for slot in owners if end + (slot + 1) * size <= length)
    assert found == tuple(SlotUse(slot, owners[slot], (0, slot), 3, 4) for slot in inside)


def test_a_limits_page_is_what_the_layout_says() -> None:
    """Every declared number is in its field, and the page begins with an even generation."""
    numbers = tuple(
        PageNumbers(granted_bytes=70, context_bytes=3, excess_bytes=5, is_wanted=True) for _ in GPUS
    )
    page = Limits.from_buffer_copy(new_limits(pod(PODS[0], line_bytes=77).containers[0], numbers))
    assert page.generation % 2 == 0
    assert [page.gpus[n].uuid.decode() for n in range(page.gpu_count)] == list(GPUS)
    first = page.gpus[0]
    assert (first.line_bytes, first.granted_bytes, first.context_bytes) == (77, 70, 3)
    assert (first.excess_bytes, first.is_wanted) == (5, 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (Line(gpu=GPUS[0], line_bytes=-1), "line_bytes: -1"),
        (Line(gpu=GPUS[0], line_bytes=1 << 63), "line_bytes: 9223372036854775808"),
        (Line(gpu=GPUS[0], line_bytes=1, share_pct=101), "share_pct: 101"),
        (Line(gpu=GPUS[0], line_bytes=1, limit_pct=0), "limit_pct: 0"),
        (
            Line(gpu=GPUS[0], line_bytes=1, share_pct=50, limit_pct=40),
            "limit_pct: 40 is below the share of 50",
        ),
        (Line(gpu=GpuUuid("G" * 48), line_bytes=1), "gpu: 'GGG"),
        (Line(gpu=GpuUuid(""), line_bytes=1), "gpu: ''"),
        (Line(gpu=GpuUuid("GPU-\u00e9"), line_bytes=1), "gpu: 'GPU-é'"),
    ],
)
def test_a_line_that_cannot_hold_is_refused(line: Line, said: str) -> None:
    """The refusal names the field, with its place, and the value."""
    container = ContainerLines(name=MAIN, lines=(line,))
    with pytest.raises(InputError) as refused:
        check(Register(pod=PODS[0], namespace="n", name="p", containers=(container,)))
    assert str(refused.value).startswith(f"containers[0].lines[0].{said}")


@pytest.mark.parametrize(
    ("containers", "said"),
    [
        ((ContainerLines(name=MAIN, lines=()),), "containers[0].lines: 0"),
        (
            (
                ContainerLines(
                    name=MAIN, lines=tuple(Line(gpu=GpuUuid(f"G{n}"), line_bytes=1) for n in range(17))
                ),
            ),
            "containers[0].lines: 17",
        ),
        (
            (ContainerLines(name=MAIN, lines=(Line(gpu=GPUS[0], line_bytes=1),) * 2),),
            "containers[0].lines[1].gpu: 'GPU-a' stands twice",
        ),
        (pod(PODS[0]).containers * 2, "containers[1].name: 'main' stands twice"),
        (
            (ContainerLines(name=ContainerName("record.json"), lines=(Line(gpu=GPUS[0], line_bytes=1),)),),
            "containers[0].name: 'record.json'",
        ),
        (
            (ContainerLines(name=ContainerName("a/b"), lines=(Line(gpu=GPUS[0], line_bytes=1),)),),
            "containers[0].name: 'a/b'",
        ),
    ],
)
def test_containers_that_cannot_be_laid_out_are_refused(
    containers: tuple[ContainerLines, ...], said: str
) -> None:
    """The refusal names the field, with its place, and the value."""
    with pytest.raises(InputError) as refused:
        check(Register(pod=PODS[0], namespace="n", name="p", containers=containers))
    assert str(refused.value).startswith(said)


def _announcement(seq: int, what: str, pid: int) -> Announcement:
    return announcement(what, seq=seq, pid=pid)
