"""Explanations of a cluster's pods, by what the scheduler itself decides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from placer.api.explaining import SLICE, WAITING_AT_MOST, NotExplainedError
from placer.core.explain.scan import PageAsked
from placer.core.reasons import Reason
from placer.kube import explain as explaining
from placer.kube.queue_position import WAKES
from placer.scheduler.queue.queueing_hints import Cause
from plimsoll.ids import PodUid
from plimsoll.kube.models import PodStatus
from plimsoll.placer_api.explain import Explained, Finding, PodState, Waiting
from plimsoll.quantity import GIB
from tests.placer.core.worlds import task
from tests.placer.kube.objects import MEMORY, SHARE, WHOLE, pod_of
from tests.placer.kube.scene import Scene, scene

SMALL = {MEMORY: "10Gi", SHARE: 20}


@asynccontextmanager
async def watched(*nodes: str, free_gib: int = 24) -> AsyncIterator[Scene]:
    """A scene whose watches are in sync, with nodes of one GPU each."""
    async with scene() as made:
        made.parts.synced.set()
        made.parts.context.leads.set()
        for node in nodes:
            made.node(node)
            made.report(node, free_gib)
        yield made


async def explained(made: Scene, name: str, page: PageAsked | None = None) -> Explained:
    """The explanation of a pod that exists."""
    found = await made.parts.doors.explainer.explain("default", name, page or PageAsked())
    assert found is not None
    return found


async def waiting(made: Scene, name: str, page: PageAsked | None = None) -> Waiting:
    """The explanation of a pod that waits."""
    found = await explained(made, name, page)
    assert found.waiting is not None, found
    return found.waiting


async def test_a_pod_that_fits_nowhere() -> None:
    """A parked pod shows its refusal, the reason of each node, who holds what it lacks, and what wakes it."""
    async with watched("n1", "n2", "n3") as made:
        made.node("n3", unschedulable=True)
        made.show(made.pod("one", {MEMORY: "20Gi"}))
        made.show(made.pod("two", {MEMORY: "18Gi"}))
        made.show(made.pod("p", SMALL))
        await made.settle()
        found = await explained(made, "p")
        assert (found.state, found.leads) == (PodState.WAITING, True)
        one = await waiting(made, "p")
        assert one.message == made.refusal("p")
        assert [(reason.reason, reason.nodes) for reason in one.reasons] == [
            (Reason.GPU_MEMORY.value, 2),
            ("node(s) were unschedulable", 1),
        ]
        assert [node.node for node in one.page] == ["n1", "n2", "n3"]
        assert one.candidates == ()
        assert one.nearest[0].node in {"n1", "n2"}
        assert one.nearest[0].text.endswith("lacks 4Gi; 1 pod of default holds 18Gi")
        assert one.nearest[0].gpus[0].holders[0].names == ("two",)
        queue = one.queue
        assert queue is not None
        assert (queue.place, queue.attempts, queue.alike) == ("parked", 1, 0)
        assert queue.next_try_s is not None
        assert "GPU memory is freed" in queue.wakes_on
        assert "a node comes, or changes its labels, taints or readiness" in queue.wakes_on


async def test_candidates_are_those_of_the_decision_and_nothing_is_booked() -> None:
    """A pod that has not been tried shows its places, best first; the next decision takes the first one."""
    async with watched("n1", "n2", "n3") as made:
        made.report("n2", 12)
        made.report("n3", 6)
        made.show(made.pod("p", SMALL))
        one = await waiting(made, "p")
        assert [row.node for row in one.candidates] == ["n1", "n2"]
        best = one.candidates[0]
        assert best.gpus == {"main": ("GPU-n1-0",)}
        assert best.sub_scores == {"main/GPU-n1-0": {"free": 1.0, "idle": 1.0}}
        assert [row.node for row in one.page] == ["n3"]
        assert one.preemption is None
        assert one.queue is not None
        assert (one.queue.place, one.queue.ahead) == ("fresh", 0)
        assert not list(made.ledger.bookings())
        await made.settle()
        assert made.pods["p"].spec.nodeName == "n1"


async def test_explaining_changes_no_decision() -> None:
    """Explanations between all steps leave each pod where it would be without them."""

    async def placed(*, explain: bool) -> dict[str, str | None]:
        async with watched(*(f"n{i}" for i in range(5))) as made:
            for i in range(20):
                made.show(made.pod(f"p{i:02}", {MEMORY: f"{3 + i % 7}Gi"}))
            for step in range(60):
                await made.settle(1)
                if explain:
                    await explained(made, f"p{step % 20:02}")
            await made.settle()
            return {name: pod.spec.nodeName for name, pod in made.pods.items()}

    assert await placed(explain=True) == await placed(explain=False)


async def test_a_malformed_pod_shows_its_refusal() -> None:
    """The message names field, value and remedy, before the pod was tried and after."""
    async with watched("n1") as made:
        made.show(made.pod("p", {MEMORY: "-1"}))
        for place in ("fresh", "given_up"):
            found = await explained(made, "p")
            assert found.state is PodState.REFUSED
            assert "'-1' is negative" in found.text
            assert found.waiting is not None
            assert found.waiting.queue is not None
            assert found.waiting.queue.place == place
            await made.settle()


async def test_a_running_pod_shows_its_decision_and_measurements() -> None:
    """Grants, score and its parts come from the decision; memory and idle time from the last report."""
    async with watched("n1") as made:
        made.show(made.pod("p", SMALL, annotations={"plimsoll.dev/gpu-share-limit": "50"}))
        made.show(made.pod("q", {MEMORY: "1Gi", SHARE: 10}))
        await made.settle()
        made.report("n1", 24, tasks=(task("p", "GPU-n1-0", 3 * GIB),))
        ran = msgspec.structs.replace(made.pods["p"], status=PodStatus(phase="Running"))
        made.show(ran)
        found = await explained(made, "p")
        running = found.running
        assert (found.state, running is not None) == (PodState.RUNNING, True)
        assert running is not None
        [grant] = running.grants
        assert (grant.used_bytes, grant.processes, grant.idle_pct, grant.sharers) == (3 * GIB, 1, 100.0, 1)
        assert (grant.line_bytes, grant.share_pct, grant.limit_pct) == (10 * GIB, 20, 50)
        assert (running.policy, running.time) == ("headroom", "2026-01-01T00:00:00Z")
        assert running.sub_scores == {"main/GPU-n1-0": {"free": 1.0, "idle": 1.0}}
        assert [check.finding for check in running.checks] == [
            Finding.UNLIKELY,
            Finding.UNLIKELY,
            Finding.LIKELY,
        ]
        assert "main requests no CPU and has no CPU limit" in running.checks[2].text
        assert running.verdict in found.text


async def test_a_pod_that_is_being_bound() -> None:
    """Between decision and Binding the pod shows its place already; a placer that follows says that it does."""
    async with watched("n1") as made:
        made.show(made.pod("p", SMALL))
        assert made._pop() is not None
        assert made.parts.core.scheduler.schedule(made.queued("p")) is not None
        made.parts.context.leads.clear()
        found = await explained(made, "p")
        assert (found.state, found.leads) == (PodState.BINDING, False)
        assert found.running is not None
        assert [grant.gpu for grant in found.running.grants] == ["GPU-n1-0"]


async def test_preemption_is_judged_by_priority_alone() -> None:
    """Pods of lower priority that hold enough could make room; pods of the same priority could not."""
    async with watched("n1") as made:
        made.show(made.pod("holder", {MEMORY: "20Gi"}))
        await made.settle()
        for name, priority, helps in (("same", 0, False), ("high", 100, True)):
            made.show(made.pod(name, SMALL, priority=priority))
            await made.settle()
            one = await waiting(made, name)
            assert one.preemption is not None
            assert one.preemption.could_help is helps
            assert one.nearest[0].gpus[0].holders[0].lower_priority == int(helps)


async def test_pods_that_are_not_to_be_placed() -> None:
    """Gated, foreign, ending and ended pods say so; unknown pods are unknown, also after their deletion."""
    async with watched("n1") as made:
        made.show(made.pod("gated", SMALL, schedulingGates=[{"name": "g"}]))
        made.show(made.pod("foreign", SMALL, scheduler="default-scheduler"))
        made.show(made.pod("ending", SMALL))
        made.show_again("ending", deletionTimestamp="2026-01-01T00:00:00Z")
        made.show(msgspec.structs.replace(made.pod("ended", SMALL), status=PodStatus(phase="Failed")))
        for name in ("gated", "foreign", "ending", "ended"):
            assert (await explained(made, name)).state.value == name
        made.delete("ended")
        for name in ("ended", "nobody"):
            assert await made.parts.doors.explainer.explain("default", name, PageAsked()) is None


async def test_a_foreign_pod_on_a_node_is_explained_as_running() -> None:
    """A pod that another scheduler bound, and that requests our GPUs, says why it counts as it does."""
    async with watched("n1") as made:
        made.show(made.pod("p", SMALL, scheduler="default-scheduler", nodeName="n1"))
        found = await explained(made, "p")
        assert found.running is not None
        assert "is missing" in found.running.doubt
        assert found.running.policy is None
        assert found.running.unheld
        assert found.running.doubt.startswith("held by nothing; ")
        assert found.running.checks[0].text.startswith("held by nothing: ")


async def test_a_pod_of_a_later_life_is_found_by_its_name() -> None:
    """After a delete and a new pod of the same name, the name leads to the new one, in whatever order they show."""
    async with watched("n1") as made:
        old = made.pod("p", SMALL)
        new = pod_of("p", SMALL, version=9)
        new = msgspec.structs.replace(new, metadata=msgspec.structs.replace(new.metadata, uid="later"))
        made.show(old)
        made.parts.core.pods.put(new)
        made.parts.core.pods.remove(old)
        assert (await explained(made, "p")).uid == "later"
        assert made.parts.core.pods.get(PodUid("p")) is None


async def test_no_explanation_before_all_was_read() -> None:
    """Before pods and nodes were read, an unknown pod may exist, so the answer is: not now."""
    async with scene() as made:
        with pytest.raises(NotExplainedError, match="has just started"):
            await made.parts.doors.explainer.explain("default", "p", PageAsked())


async def test_an_explanation_works_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of 200 nodes are judged at a time, and other tasks run in between; few explanations may wait."""
    async with watched(*(f"n{i:03}" for i in range(200)), free_gib=1) as made:
        made.show(made.pod("p", {WHOLE: 1}))
        judged = [0]
        judge = explaining.KubeExplainer._judge

        def counted(*args: object) -> None:
            judged[-1] += 1
            judge(*args)  # type: ignore[arg-type] # as it was called

        monkeypatch.setattr(explaining.KubeExplainer, "_judge", counted)
        task = asyncio.create_task(explained(made, "p"))
        while not task.done():
            judged.append(0)
            await asyncio.sleep(0)
        assert sum(judged) == 200
        assert max(judged) <= SLICE
        assert (await task).waiting is not None
        many = [asyncio.create_task(explained(made, "p")) for _ in range(WAITING_AT_MOST + 3)]
        done = await asyncio.gather(*many, return_exceptions=True)
        assert sum(isinstance(one, NotExplainedError) for one in done) == 3


async def test_nodes_that_leave_meanwhile_are_left_out() -> None:
    """A node that leaves during an explanation is not judged, and breaks nothing."""
    async with watched(*(f"n{i:03}" for i in range(100)), free_gib=1) as made:
        made.show(made.pod("p", SMALL))
        task = asyncio.create_task(waiting(made, "p"))
        await asyncio.sleep(0)
        for i in range(50, 100):
            made.remove_node(f"n{i:03}")
        made.delete("p")
        assert 32 <= (await task).nodes <= 64


async def test_the_page_of_nodes_goes_on_where_it_ended() -> None:
    """`continue` leads through all nodes, and `reason` leaves out the others."""
    async with watched(*(f"n{i}" for i in range(5)), free_gib=1) as made:
        made.node("n3", unschedulable=True)
        made.show(made.pod("p", SMALL))
        first = await waiting(made, "p", PageAsked(limit=2, reason=Reason.GPU_MEMORY.value))
        assert ([row.node for row in first.page], first.more) == (["n0", "n1"], "n1")
        second = await waiting(made, "p", PageAsked(limit=2, after="n1", reason=Reason.GPU_MEMORY.value))
        assert ([row.node for row in second.page], second.more) == (["n2", "n4"], "")


def test_each_cause_of_a_refusal_has_words() -> None:
    """People read which change would lift a cause."""
    assert WAKES.keys() == set(Cause)
