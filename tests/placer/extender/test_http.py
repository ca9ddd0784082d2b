"""The extender's port: what goes wrong there, and what the metrics count."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from placer.extender.extender import Leadership
from placer.extender.http import BODY_BYTES, PATH
from tests.placer.extender.front import HEADERS, MEMORY, ask, asked, order, serving_front
from tests.placer.kube.scene import Scene
from tests.servers.waiting import until_true

POD = {
    "metadata": {"name": "p", "namespace": "d", "uid": "u"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {MEMORY: "4Gi"}}}]},
}


@pytest.fixture
async def served() -> AsyncIterator[tuple[Scene, int]]:
    """A front end that leads, and the port of its extender. There is no API server behind it."""
    scene = Scene()
    scene.parts.context.leads.set()
    scene.parts.extender.leadership = Leadership(scene.parts.context.leads, None, lambda: 0.0)
    async with serving_front(scene.parts) as port:
        yield scene, port


def count(scene: Scene, verb: str, outcome: str) -> float:
    """The number of answers with this outcome."""
    labels = {"verb": verb, "outcome": outcome}
    name = "plimsoll_placer_extender_requests_total"
    return scene.decider.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_each_verb_and_outcome_is_counted(served: tuple[Scene, int]) -> None:
    """Answers are counted by verb and outcome, and their time by verb."""
    scene, port = served
    scene.report("n1", 24)
    scene.report("n2", 2)
    question = {"Pod": POD, "NodeNames": ["n1", "n2"]}
    assert (await asked(port, "filter", question))["NodeNames"] == ["n1"]
    assert await asked(port, "prioritize", question) == [
        {"Host": "n1", "Score": 10},
        {"Host": "n2", "Score": 0},
    ]
    assert (await asked(port, "filter", {"Pod": POD, "NodeNames": ["n2"]}))["NodeNames"] == []
    assert (await asked(port, "bind", {"PodName": 3}))["Error"].startswith("plimsoll: body: ")
    scene.parts.context.leads.clear()
    assert "has just started" in (await asked(port, "bind", order(POD, "n1")))["Error"]
    counted = [("filter", "fits"), ("filter", "unfit"), ("prioritize", "scored"), ("bind", "malformed")]
    assert [count(scene, *one) for one in (*counted, ("bind", "unavailable"))] == [1, 1, 1, 1, 1]
    times = "plimsoll_placer_extender_seconds_count"
    assert scene.decider.metrics.registry.get_sample_value(times, {"verb": "filter"}) == 2


async def test_a_failed_prioritize_has_another_status(served: tuple[Scene, int]) -> None:
    """Its answer has no field for an error, and kube-scheduler goes on without priorities."""
    scene, port = served
    assert await ask(port, "prioritize", {"Pod": POD}) == (
        400,
        b"Nodes: 'null' and NodeNames are both missing; send one of them\n",
    )
    scene.parts.context.leads.clear()
    status, text = await ask(port, "prioritize", {"Pod": POD, "NodeNames": []})
    assert (status, b"has just started" in text) == (503, True)


async def test_a_question_that_is_too_long_is_refused(served: tuple[Scene, int]) -> None:
    """More Node objects than the placer takes are refused before they are read."""
    scene, port = served
    status, _ = await ask(port, "filter", b"[" * (BODY_BYTES + 1))
    assert (status, count(scene, "filter", "malformed")) == (413, 1)


async def test_a_client_that_leaves_in_the_middle_of_its_question_is_counted(
    served: tuple[Scene, int], caplog: pytest.LogCaptureFixture
) -> None:
    """It gets no answer and makes no log line."""
    scene, port = served
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {PATH}/bind HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{"
    writer.write(head.encode())
    await writer.drain()
    writer.close()
    await until_true(lambda: count(scene, "bind", "malformed") == 1)
    assert not [one for one in caplog.records if one.name.startswith("aiohttp")]


async def test_a_page_in_a_browser_can_ask_nothing(served: tuple[Scene, int]) -> None:
    """Only JSON is taken. A page of another site cannot send that to this machine without asking first."""
    _, port = served
    url = f"http://127.0.0.1:{port}{PATH}/bind"
    body = json.dumps(order(POD, "n1"))
    async with aiohttp.request("POST", url, data=body, headers={"Content-Type": "text/plain"}) as answer:
        assert answer.status == 415
    async with aiohttp.request("OPTIONS", url, headers=HEADERS) as answer:
        assert answer.status == 405
    async with aiohttp.request("GET", url) as answer:
        assert answer.status == 405


async def test_victims_come_back_by_uid(served: tuple[Scene, int]) -> None:
    """Whether kube-scheduler names its victims by uid or sends them whole, nodes where they help come back."""
    scene, port = served
    scene.report("n1", 24)
    scene.report("n2", 2)
    by_uid = {node: {"Pods": [{"UID": "v"}], "NumPDBViolations": 1} for node in ("n1", "n2")}
    kept = {"NodeNameToMetaVictims": {"n1": by_uid["n1"]}}
    assert await asked(port, "preempt", {"Pod": POD, "NodeNameToMetaVictims": by_uid}) == kept
    whole = {node: {"Pods": [{"metadata": {"uid": "v"}}], "NumPDBViolations": 1} for node in ("n1", "n2")}
    question = {"Pod": POD, "NodeNameToVictims": whole, "NodeNameToMetaVictims": None}
    assert await asked(port, "preempt", question) == kept
