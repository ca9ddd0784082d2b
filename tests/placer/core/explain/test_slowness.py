"""Whether a running pod is slow by its limit, its neighbours, or its host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.explain.slowness import GpuPart, LimitNews, Observed, checks_of, verdict_of
from plimsoll.events import Limit
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.placer_api.explain import Finding
from plimsoll.quantity import GIB

LIKELY, POSSIBLE, UNLIKELY, UNKNOWN = Finding.LIKELY, Finding.POSSIBLE, Finding.UNLIKELY, Finding.UNKNOWN


def part(
    *,
    idle_pct: float | None = 5.0,
    others: int | None = 0,
    processes: int | None = 1,
    limit_pct: int = 100,
    share_pct: int = 30,
    used_gib: float = 2,
    whole: bool = False,
) -> GpuPart:
    """A container's part of a GPU, of 8 GiB."""
    return GpuPart(
        container=ContainerName("main"),
        gpu=GpuUuid("GPU-1"),
        line_bytes=8 * GIB,
        share_pct=share_pct,
        limit_pct=limit_pct,
        whole=whole,
        used_bytes=int(used_gib * GIB),
        processes=processes,
        idle_pct=idle_pct,
        others=others,
        promised_pct=60,
    )


def news(what: str, **figures: float) -> LimitNews:
    """An event about the container, half a minute old."""
    limit = Limit(
        node=NodeName("n1"),
        gpu=GpuUuid("GPU-1"),
        pod=PodUid("p"),
        container=ContainerName("main"),
        requested_bytes=GIB,
        line_bytes=8 * GIB,
        share_pct=int(figures.get("share_pct", 0)),
        used_pct=figures.get("used_pct", 0.0),
    )
    return LimitNews(what, 30.0, limit)


def findings(observed: Observed) -> tuple[Finding, ...]:
    """The findings on limit, neighbours and host."""
    return tuple(check.finding for check in checks_of(observed))


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (part(limit_pct=40, idle_pct=60), (LIKELY, UNLIKELY, UNLIKELY)),  # busy for just its limit, alone
        (part(limit_pct=40, idle_pct=90), (UNLIKELY, UNLIKELY, LIKELY)),  # far from its limit, alone
        (part(idle_pct=70), (UNLIKELY, UNLIKELY, LIKELY)),  # the GPU waits for the program
        (part(idle_pct=2), (UNLIKELY, UNLIKELY, UNLIKELY)),  # it has all of a busy GPU
        (part(idle_pct=2, others=3), (UNLIKELY, POSSIBLE, UNKNOWN)),
        (part(idle_pct=60, others=3), (UNLIKELY, UNLIKELY, POSSIBLE)),
        (part(limit_pct=40, idle_pct=20, others=1), (UNKNOWN, POSSIBLE, UNKNOWN)),
        (part(processes=0, idle_pct=100), (UNLIKELY, UNLIKELY, LIKELY)),
        (part(whole=True, idle_pct=50), (UNLIKELY, UNLIKELY, LIKELY)),
        (part(used_gib=8), (POSSIBLE, UNLIKELY, UNLIKELY)),
        (part(idle_pct=None, others=None, processes=None, limit_pct=50), (UNKNOWN, UNKNOWN, UNKNOWN)),
    ],
)
def test_findings_by_the_last_report(one: GpuPart, found: tuple[Finding, ...]) -> None:
    """Limit, neighbours and host are found by what the report can show, and are unknown where it cannot."""
    assert findings(Observed((one,))) == found


def test_events_of_the_node_are_certain() -> None:
    """A refused allocation speaks against the limit, and an unmet share against the neighbours."""
    refused = checks_of(Observed((part(),), news=(news("denied"),)))[0]
    assert (refused.finding, refused.text) == (LIKELY, "main was refused 1Gi 30 s ago, by its line of 8Gi")
    unmet = checks_of(Observed((part(),), news=(news("unmet", share_pct=30, used_pct=12.4),)))[1]
    expected = "main got 12 % of the time 30 s ago, while it wanted its share of 30 %"
    assert (unmet.finding, unmet.text) == (LIKELY, expected)


def test_the_host_is_described_by_what_the_pod_asked_for() -> None:
    """The CPU time that a pod uses is not known, and the text says so beside its requests."""
    host = checks_of(Observed((part(idle_pct=80),), cpu="main requests 500m CPU and is held to 1"))[2]
    assert "main requests 500m CPU and is held to 1; the CPU time that it uses is not known" in host.text


def test_the_verdict_begins_with_what_is_most_likely() -> None:
    """The sentence names the likely reason, and that measurements are old."""
    observed = Observed((part(limit_pct=40, idle_pct=60),), silent=True)
    verdict = verdict_of(observed, checks_of(observed))
    assert verdict.startswith(
        "If it is slow, then likely by its limit: main on GPU-1 may use 40 % of the time"
    )
    assert verdict.endswith("(by its last report, which is old: the node is silent)")
    idle = Observed((part(idle_pct=2),))
    assert verdict_of(idle, checks_of(idle)) == "Nothing that the placer knows holds it back"


def test_a_pod_without_a_gpu() -> None:
    """Nothing is claimed about a pod that asked for no GPU."""
    assert findings(Observed(())) == (UNLIKELY, UNLIKELY, UNKNOWN)


parts = st.builds(
    part,
    idle_pct=st.none() | st.floats(0, 100),
    others=st.none() | st.integers(0, 5),
    processes=st.none() | st.integers(0, 3),
    limit_pct=st.integers(1, 100),
    share_pct=st.integers(0, 100),
    used_gib=st.floats(0, 9),
    whole=st.booleans(),
)


@given(st.lists(parts, max_size=3), st.booleans())
def test_every_pod_gets_a_sentence(given_parts: list[GpuPart], silent: bool) -> None:  # noqa: FBT001 - drawn
    """Whatever is known and not known, three findings and a sentence come out."""
    observed = Observed(tuple(given_parts), silent=silent)
    checks = checks_of(observed)
    assert [check.by for check in checks] == ["limit", "neighbours", "host"]
    assert all(check.text for check in checks)
    assert verdict_of(observed, checks)
