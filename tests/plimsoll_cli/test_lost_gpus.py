"""Pods whose GPU no report names stay in every list, and their memory is not counted as free."""

import pytest
from msgspec.structs import replace

from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll_cli import gpus, nodes, pods
from plimsoll_cli.pods import LOST, PodFilter
from tests.placer.live.world import World, card, serving, state, world

LOST_CARD = GpuHealth(
    gpu=GpuUuid("GPU-old"),
    index=1,
    model="NVIDIA L4",
    health=HealthClass.FATAL,
    since="2026-01-01T00:00:00Z",
    conditions=(
        Condition(what="lost", health=HealthClass.FATAL, since="2026-01-01T00:00:00Z", text="is gone"),
    ),
)


async def before() -> World:
    """A node whose second card has a pod."""
    made = await world(state("n1", card("GPU-1"), card("GPU-old")))
    made.book("p", "n1", "GPU-old", 20, share_pct=30, name="trainer")
    return made


@pytest.mark.parametrize("case", ["lost", "unnamed", "no report"])
async def test_a_pod_on_a_gpu_that_no_report_names(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The card is replaced, with or without a word of the driver; or nothing is known of the node."""
    made = await before()
    match case:
        case "no report":
            made.decider.reports.forget(NodeName("n1"))
        case _:
            health = (LOST_CARD,) if case == "lost" else ()
            made.report(replace(state("n1", card("GPU-1"), card("GPU-new"), seq=2), health=health))
    async with serving(made) as url:
        [pod] = (await pods.pods(url, PodFilter(), "wide", None)).splitlines()[1:]
        lines = (await gpus.gpus(url, None, None, "wide", None)).splitlines()
        [node] = (await nodes.nodes(url, None, "table", None)).splitlines()[1:]
    assert pod.split()[:5] == ["team/trainer", *LOST.split(), "n1", "0/20Gi"]
    reason = {"lost": "is gone"}.get(case, "no report names it")
    assert pod.endswith(f"GPU-old: {reason}")
    [lost] = [line for line in lines if "GPU-old" in line]
    assert "20Gi promised to 1 pod" in lost
    assert reason in lost
    assert "20Gi promised on 1 GPU(s) that no report names" in node
    free = "0" if case == "no report" else "28Gi"
    assert node.split()[3] == free, node
    assert "not ready" not in capsys.readouterr().err
    made.decider.ledger.forget(PodUid("p"))
    row = made.page.streams.rows.row(NodeName("n1"))
    assert (row is None) == (case == "no report")


async def test_a_placer_that_lacks_something_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands answer all that they can, and standard error says why an answer may be old."""
    made = await before()
    made.missing.append("NATS is out of reach")
    async with serving(made) as url:
        assert "trainer" in await pods.pods(url, PodFilter(), "table", None)
        assert "n1" in await nodes.nodes(url, None, "table", None)
    note = "plimsoll: the placer is not ready (NATS is out of reach), so this may be out of date\n"
    assert capsys.readouterr().err == 2 * note
