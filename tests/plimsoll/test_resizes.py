"""A pod's resize annotations are read back as written, and refused if damaged."""

import pytest

from plimsoll.contract import ContainerDemand
from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.kube.models import ObjectMeta, Pod
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from plimsoll.resizes import (
    NEVER_RESIZED,
    Resized,
    Share,
    annotations_of,
    readable_resizes,
    resized_lines,
    resized_of,
    resized_shares,
)

MAIN, SIDE = ContainerName("main"), ContainerName("side")
A, B = GpuUuid("GPU-A"), GpuUuid("GPU-B")
LINES, SHARES = "plimsoll.dev/lines", "plimsoll.dev/shares"


def pod(**annotations: str) -> Pod:
    """A pod with these annotations in Plimsoll's domain."""
    named = {f"plimsoll.dev/{name}": value for name, value in annotations.items()}
    return Pod(metadata=ObjectMeta(name="p", annotations=named))


def declared(memory_gib: int | None = 4, *, whole: bool = False) -> ContainerDemand:
    """The demand of `main` on each GPU: 30 percent, and a limit of 60."""
    memory_bytes = None if memory_gib is None else memory_gib * GIB
    return ContainerDemand(MAIN, 2, memory_bytes, 0 if whole else 30, 60, whole=whole)


def test_resizes_are_read_back_as_they_were_written() -> None:
    """The same resizes give the same text in any order; a pod that was never resized has no annotation."""
    share = Share(share_pct=0, limit_pct=80)
    resized = Resized({MAIN: {B: 2 * GIB, A: 6 * GIB}}, {SIDE: share, MAIN: share})
    again = Resized({MAIN: {A: 6 * GIB, B: 2 * GIB}}, {MAIN: share, SIDE: share})
    written = annotations_of(resized)
    assert written == annotations_of(again)
    assert resized_of(pod(lines=written[LINES] or "", shares=written[SHARES] or "")) == resized
    assert written[SHARES] == '{"main":{"limit_pct":80,"share_pct":0},"side":{"limit_pct":80,"share_pct":0}}'
    assert annotations_of(NEVER_RESIZED) == {LINES: None, SHARES: None}
    assert resized_of(pod()) == NEVER_RESIZED


def test_a_resize_stands_over_the_declaration() -> None:
    """A resize overrides lines by GPU, and share and limit on all GPUs. All other values stay as declared."""
    resized = Resized({MAIN: {A: 6 * GIB}}, {MAIN: Share(share_pct=40, limit_pct=80)})
    on_a, on_b = resized.of(declared(), A), resized.of(declared(), B)
    assert (on_a.memory_bytes, on_a.share_pct, on_a.limit_pct) == (6 * GIB, 40, 80)
    assert (on_b.memory_bytes, on_b.share_pct, on_b.limit_pct) == (4 * GIB, 40, 80)
    lines_alone = Resized({MAIN: {A: 6 * GIB}}).of(declared(), A)
    assert (lines_alone.share_pct, lines_alone.limit_pct) == (30, 60)


def test_what_has_no_line_or_no_share_of_its_own_keeps_what_it_has() -> None:
    """A best-effort container gets compute time and no line, and a whole GPU stays its container's."""
    resized = Resized({MAIN: {A: 6 * GIB}}, {MAIN: Share(share_pct=40, limit_pct=80)})
    loose = resized.of(declared(None), A)
    assert (loose.memory_bytes, loose.share_pct, loose.limit_pct) == (None, 40, 80)
    whole = declared(None, whole=True)
    assert resized.of(whole, A) == whole


@pytest.mark.parametrize(
    "text", ["", "[]", '{"main": {"A": 0}}', '{"main": {"A": "6Gi"}}', '{"main": 6}', "[" * 99_999]
)
def test_damaged_lines_are_refused(text: str) -> None:
    """A line that is not a whole number of bytes above 0 is refused."""
    with pytest.raises(InputError, match=r"plimsoll\.dev/lines.* is damaged .*; resize the pod again"):
        resized_lines(pod(lines=text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is damaged"),
        ('{"main": 40}', "is damaged"),
        ('{"main": {"share_pct": 40}}', "is damaged"),
        ('{"main": {"share_pct": -1, "limit_pct": 80}}', "is damaged"),
        ('{"main": {"share_pct": 0, "limit_pct": 0}}', "is damaged"),
        ('{"main": {"share_pct": 101, "limit_pct": 101}}', "is damaged"),
        ('{"main": {"share_pct": 40, "limit_pct": 30}}', "gives main a share above its limit of 30"),
    ],
)
def test_damaged_shares_are_refused(text: str, said: str) -> None:
    """A percentage out of range, a share above its limit, and a share or limit alone are refused."""
    with pytest.raises(InputError, match=rf"plimsoll\.dev/shares.* {said}.*; resize the pod again"):
        resized_shares(pod(shares=text))


def test_one_damaged_annotation_does_not_spoil_the_other() -> None:
    """A caller that must go on can read a damaged annotation as absent."""
    shares = '{"main": {"share_pct": 40, "limit_pct": 80}}'
    assert readable_resizes(pod(lines="{", shares=shares)) == Resized(
        {}, {MAIN: Share(share_pct=40, limit_pct=80)}
    )
    assert readable_resizes(pod(lines='{"main": {"GPU-A": 5}}', shares="{")) == Resized({MAIN: {A: 5}})
