"""The judge of the truth run finds what is lost, made up, published twice, or wrong, and nothing else."""

import dataclasses
from collections.abc import Sequence

import pytest

from bench.monitor.verdict import (
    Plateau,
    Reading,
    StreamedEvent,
    Truth,
    Violations,
    disorder,
    judge,
    plateaus,
    two_contents,
)
from plimsoll.ids import ProcessKey

S, MIB = 1_000_000_000, 1 << 20
ONE, EARLY, STRANGER = ProcessKey(10, 1), ProcessKey(11, 2), ProcessKey(99, 3)
READINGS = [Reading(at * S, (300 if at < 3 else 800) * MIB) for at in range(1, 20)]
TRUTH = Truth(
    frozenset({ONE}), frozenset({10, 11}), {10: READINGS}, {10: [Plateau(3 * S, 19 * S, 800 * MIB)]}
)


def event(process: ProcessKey, what: str, at_s: int, mib: int = 800) -> StreamedEvent:
    """A task event."""
    return StreamedEvent(process, what, at_s * S, mib * MIB)


LIFE = [event(ONE, "started", 1), event(ONE, "loaded", 5), event(ONE, "exited", 19)]


def judged(*events: StreamedEvent) -> Violations:
    """The verdict on these events."""
    return judge(TRUTH, events, [], 2 * S)


def test_a_true_run_has_no_findings() -> None:
    """A whole life is right, and so is one of a process that died before anybody else saw it."""
    assert not judged(*LIFE).all
    assert not judged(*LIFE, event(EARLY, "started", 4), event(EARLY, "exited", 4)).all


@pytest.mark.parametrize(
    ("events", "lost", "phantom"),
    [
        (LIFE[1:], 1, 0),
        (LIFE[:-1], 1, 0),
        ([LIFE[0], LIFE[2]], 1, 0),
        ([], 3, 0),
        ([*LIFE, LIFE[0]], 0, 1),
        ([*LIFE, event(STRANGER, "started", 3)], 0, 1),
        ([*LIFE, event(EARLY, "started", 3)], 1, 0),
    ],
)
def test_what_is_lost_or_made_up_is_found(events: Sequence[StreamedEvent], lost: int, phantom: int) -> None:
    """A missing start, exit or load is lost; a second one, or one of a process that never ran, is a phantom."""
    verdict = judged(*events)
    assert (len(verdict.lost), len(verdict.phantom)) == (lost, phantom)


def test_a_load_has_the_bytes_that_the_book_showed() -> None:
    """Bytes of another moment or of no moment are inaccurate, a difference within the tolerance is none."""
    assert not judged(LIFE[0], event(ONE, "loaded", 5, 793), LIFE[2]).all
    for at_s, mib in ((5, 780), (9, 300)):
        verdict = judged(*LIFE[:2], event(ONE, "loaded", at_s, mib), LIFE[2])
        assert (len(verdict.inaccurate), len(verdict.lost)) == (1, 0)


def test_a_load_between_two_distant_readings_is_right() -> None:
    """Where the reader of the book stood still, either side of the gap counts."""
    sparse = dataclasses.replace(TRUTH, readings={10: [READINGS[0], READINGS[-1]]}, plateaus={})
    assert not judge(sparse, LIFE, [], 2 * S).all


def test_the_order_of_a_life_is_judged() -> None:
    """An exit before the load is out of order."""
    assert judged(LIFE[0], LIFE[2], LIFE[1]).disorder


def test_reports_are_without_gaps() -> None:
    """Each number follows the one before, and an epoch begins at 1."""
    assert not disorder([(1, 1), (1, 2), (3, 1), (3, 2)])
    for wrong in ([(1, 1), (1, 3)], [(1, 1), (2, 2)], [(2, 1), (1, 1)], [(1, 1), (1, 1)], [(1, 2)]):
        assert len(disorder(wrong)) == 1, wrong


def test_one_id_with_two_contents_is_found() -> None:
    """The same bytes again are right, others are not."""
    assert two_contents([("a", b"1"), ("b", b"1"), ("a", b"1")]) == []
    assert two_contents([("a", b"1"), ("a", b"2")]) == ["a"]


def test_plateaus_are_the_long_stretches_after_a_rise() -> None:
    """A short one does not count, nor one after a fall alone; a rise above the lowest since counts."""
    levels = [300] * 2 + [800] * 9 + [820] * 9 + [200] * 2 + [800] * 9 + [100] * 9
    readings = [Reading(at * S, level * MIB) for at, level in enumerate(levels)]
    found = plateaus(readings, 8 * S, 64 * MIB)
    assert [(each.begin_ns // S, each.end_ns // S, each.used_bytes // MIB) for each in found] == [
        (2, 10, 800),
        (22, 30, 800),
    ]


@pytest.mark.parametrize(
    ("between_mib", "lost"),
    [((800, 500), 0), ((500, 900, 500), 0), ((430, 900, 500), 0), ((100, 500), 1)],
    ids=["it shrank", "a peak", "it rose by less than a tenth", "it shrank and rose"],
)
def test_a_rest_before_a_plateau_answers_for_it_unless_memory_rose_since(
    between_mib: tuple[int, ...], lost: int
) -> None:
    """A task whose memory rose by less than a reload since its `loaded` needs no other `loaded`."""
    levels = [(at, mib) for at, mib in enumerate((300, *between_mib), start=1)]
    readings = [Reading(at * S, mib * MIB) for at, mib in (*levels, *((at, 500) for at in range(6, 20)))]
    before = dataclasses.replace(
        TRUTH,
        readings={10: readings},
        plateaus={10: [Plateau(6 * S, 19 * S, 500 * MIB)]},
        reload_bytes=64 * MIB,
    )
    loaded = event(ONE, "loaded", 2, between_mib[0])
    found = judge(before, [LIFE[0], loaded, LIFE[2]], [], 2 * S)
    assert len(found.lost) == lost
