"""`plimsoll relocation`: the plan that people read is that of the placer's own search, over its HTTP port."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from rich.console import Console

from placer.api.http import Api, serving_port
from placer.relocation.rules import RelocationMode, RelocationRules
from plimsoll.placer_api.client import NoSuchPodError
from plimsoll_cli.relocation import preview, shown
from tests.placer.kube.preemption_scene import PreemptionScene, on_gpu, preemption_scene
from tests.placer.relocation.relocations import halves, mover, plan, wait, wide
from tests.placer.states import reader_of

OFF = RelocationRules(RelocationMode.OFF, rest_s=0.0)


@asynccontextmanager
async def port(playing: PreemptionScene) -> AsyncIterator[str]:
    """The HTTP port of a placer with this front end; gives its URL."""
    playing.parts.synced.set()
    reader, registry = reader_of(playing.scene.decider), playing.scene.decider.metrics.registry
    api = Api(reader.rows, reader, tuple, list, registry, previews=lambda: playing.parts.doors.previews)
    async with serving_port(api, "127.0.0.1", 0) as opened:
        yield f"http://127.0.0.1:{opened}"


async def printed(url: str, pod: str | None) -> list[str]:
    """The lines that the command prints, each with single blanks."""
    console = Console(file=io.StringIO(), width=140)
    for part in shown(await preview(url, "default", pod)):
        console.print(part, highlight=False)
    text = console.file.getvalue()  # type: ignore[attr-defined] # the file of above
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


async def test_a_waiting_pod_s_plan_and_the_pods_that_stay() -> None:
    """The reader sees what would move at which cost, that nothing moves, and why the other pods stay."""
    async with preemption_scene(OFF) as playing, port(playing) as url:
        halves(playing)
        playing.scene.node("n3")
        playing.scene.report("n3", 24)
        playing.scene.show(mover("bare", "GPU-n3-0", 70, owner={}))
        await wait(playing, wide())
        assert await printed(url, "wide") == [
            "Moving 1 pod at a cost of 1 makes room on n1. Nothing is moved: PLIMSOLL_RELOCATION is off.",
            "Pods that would move",
            "pod cost from to",
            "default/m1 1 n1 GPU-n1-0 n2 GPU-n2-0",
            "May the pods with GPUs be moved?",
            "1 yes",
            "1 no: no annotation plimsoll.dev/relocation-cost",
            "1 no: no controller that replaces it elsewhere",
        ]
        assert (playing.evicted, playing.nominated) == ([], [])


async def test_a_gpu_to_be_freed_and_pods_for_which_none_move() -> None:
    """Without a pod, the pods of one GPU move to one in use. For a pod with a place, or an unknown one, none move."""
    async with preemption_scene(OFF) as playing, port(playing) as url:
        halves(playing)
        assert (await printed(url, None))[0].startswith("Moving 1 pod at a cost of 1 makes room on n1.")
        assert await printed(url, "stone") == ["The pod has a place, so no pods are moved for it."]
        with pytest.raises(NoSuchPodError, match="does not exist"):
            await printed(url, "nobody")
        playing.scene.show(on_gpu("more", "GPU-n2-0", share=40))
        assert (await printed(url, None))[
            0
        ] == "No plan: with up to 3 moves, not all pods would have a place."


async def test_the_gpu_to_be_freed_is_nobodys_pod() -> None:
    """Nothing need hold it, also where pods that nothing would hold are refused."""
    async with preemption_scene(OFF, places_unheld=False) as playing, port(playing) as url:
        halves(playing)
        assert (await printed(url, None))[0].startswith("No plan: ")


async def test_a_pod_for_which_pods_move_now() -> None:
    """While the moved pod ends, the answer is the plan under way."""
    async with (
        preemption_scene(RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0)) as playing,
        port(playing) as url,
    ):
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        [line] = await printed(url, "wide")
        assert line.startswith(
            "Room is being made for the pod on n1. Moving 1 pod at a cost of 1 makes room on n1:"
        )
