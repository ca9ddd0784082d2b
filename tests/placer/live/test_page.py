"""The live page in a real browser: what it shows, by keys alone, for all eyes, with hostile names, over outages."""

import asyncio
import contextlib
from pathlib import Path

from playwright.async_api import expect

from placer.api.access import TokenFile
from plimsoll.events import Phase
from plimsoll.ids import NodeName, PodUid
from plimsoll.placer_api.live import WaitingPod
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import bus, publish
from tests.placer.live.browser import Watched
from tests.placer.live.test_news import denied
from tests.placer.live.world import Detour, World, card, loading, serving, state, world
from tests.placer.local.world import idle_report
from tests.placer.test_app import MANIFEST, local_settings, placer

HOSTILE = "<img src=x onerror=alert(1)>"


async def fleet() -> World:
    """Two nodes, a pod that has loaded, one that has not begun, one that waits, and an event."""
    made = await world(
        state("node-9", card("GPU-9", loading("p", "GPU-9", 3)), card("GPU-8", index=1, ratio=1.25)),
        state("node-10", card("GPU-10")),
    )
    made.book("p", "node-9", "GPU-9", 8, share_pct=30, name="trainer")
    made.book("q", "node-9", "GPU-8", 26, share_pct=70, name="server")
    made.pods.without_node.append(
        WaitingPod(
            pod=PodUid("w"),
            namespace="team",
            name="big",
            since="2026-01-01T00:00:00Z",
            asks="80Gi on 1 GPU",
            reason="0/2 nodes are available: 2 no GPU has enough memory",
        )
    )
    made.page.news.note(denied())
    return made


async def test_the_page_shows_the_cluster(watched: Watched) -> None:
    """Nodes in the order of their numbers, promises beside measurements, waiting pods with reasons, and events."""
    page = watched.page
    async with serving(await fleet()) as url, watched.at(url):
        await expect(page.locator("#fleet h3")).to_have_text(["node-9", "node-10"])
        gpu = page.locator("[data-gpu='GPU-9']")
        await expect(gpu).to_contain_text("3 GiB of 24 GiB")
        await expect(gpu).to_contain_text("8 GiB promised")
        await expect(gpu).to_contain_text("● trainer")
        await expect(page.locator("[data-gpu='GPU-8']")).to_contain_text("○ server")
        await expect(page.locator("#waiting")).to_contain_text("no GPU has enough memory")
        await expect(page.locator("#waiting")).to_contain_text("asks for 80Gi on 1 GPU")
        await expect(page.locator("#news")).to_contain_text("2Gi more were refused")
        await expect(page.locator("#figure-gpus")).to_have_text("3 on 2 nodes")
        await expect(page.locator("#figure-waiting")).to_have_text("1")
        assert all(one.startswith(url) for one in watched.requests), watched.requests


async def test_changes_appear_by_themselves(watched: Watched) -> None:
    """A task goes from starting over loading to loaded, a node comes, and one goes, without a reload."""
    page, made = watched.page, await fleet()
    async with serving(made) as url, watched.at(url):
        row = page.locator("[data-gpu='GPU-10'] .names")
        made.book("r", "node-10", "GPU-10", 4, name="loader")
        await expect(row).to_have_text("○ loader")
        for seq, (phase, mark) in enumerate(
            ((Phase.STARTED, "·"), (Phase.LOADING, "▲"), (Phase.LOADED, "●")), start=2
        ):
            made.report(state("node-10", card("GPU-10", loading("r", "GPU-10", seq, phase)), seq=seq))
            await expect(row).to_have_text(f"{mark} loader")
        made.report(state("node-11", card("GPU-11")))
        made.decider.reports.forget(NodeName("node-9"))
        # Its pods are still promised what they have, so it stays until they end.
        await expect(page.locator("#fleet")).to_contain_text("no report names it, 1 pod")
        for one in tuple(made.decider.ledger.bookings()):
            if one.node == "node-9":
                made.decider.ledger.forget(one.pod)
        await expect(page.locator("#fleet h3")).to_have_text(["node-10", "node-11"])
        made.pods.without_node.clear()
        await expect(page.locator("#waiting-empty")).to_be_visible()
        made.missing.append("NATS is out of reach")
        await expect(page.locator("#banner")).to_have_text("NATS is out of reach")


async def test_everything_is_reached_by_keys_alone(watched: Watched) -> None:
    """Keys move over GPUs, open one, close it, go to the waiting pods and the filter, and change the look."""
    page = watched.page
    async with serving(await fleet()) as url, watched.at(url):
        await page.wait_for_selector("[data-gpu='GPU-10']")
        press, focused = page.keyboard.press, page.locator(":focus")
        await press("g")
        await expect(focused).to_have_attribute("data-gpu", "GPU-9")
        await press("ArrowDown")
        await expect(focused).to_have_attribute("data-gpu", "GPU-8")
        await press("ArrowRight")
        await expect(focused).to_have_attribute("data-gpu", "GPU-10")
        await press("Home")
        await press("Enter")
        await expect(page.locator("#dialog-title")).to_have_text("GPU 0 of node-9")
        await expect(page.locator("#dialog-body")).to_contain_text("team/trainer")
        await press("Escape")
        await expect(page.locator("#dialog")).to_be_hidden()
        await expect(focused).to_have_attribute("data-gpu", "GPU-9")
        await press("w")
        await expect(focused).to_have_text("team/big")
        await press("/")
        await page.keyboard.type("SERVER")
        await expect(page.locator(".node:visible h3")).to_have_text(["node-9"])
        await press("Escape")
        await expect(page.locator(".node:visible h3")).to_have_text(["node-9", "node-10"])
        await press("d")
        await expect(page.locator("#density")).to_have_attribute("aria-pressed", "true")
        await press("t")
        await press("t")
        await expect(page.locator("#theme")).to_have_text("Theme: dark")
        await press("?")
        await expect(page.locator("#dialog-title")).to_have_text("Keys")


async def test_the_page_has_no_serious_barrier(watched: Watched) -> None:
    """axe-core finds nothing serious: in light and dark, dense, with a dialog, and in a narrow window."""
    page, made = watched.page, await fleet()
    made.missing.append("NATS is out of reach")
    async with serving(made) as url, watched.at(url):
        await expect(page.locator("#news .row")).to_have_count(1)
        await page.emulate_media(reduced_motion="reduce")
        assert await watched.barriers() == []
        for scheme in ("light", "dark"):
            await page.emulate_media(
                color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce"
            )
            assert await watched.barriers() == [], scheme
        await page.locator("[data-gpu='GPU-9']").click()
        assert await watched.barriers() == []
        await page.keyboard.press("Escape")
        await page.keyboard.press("d")
        await page.set_viewport_size({"width": 480, "height": 900})
        assert await watched.barriers() == []


async def test_hostile_names_are_texts(watched: Watched) -> None:
    """Whatever a pod, a model or a reason is called, it is shown as it is, and nothing of it is executed."""
    page = watched.page
    made = await world(state("n1", card("GPU-1", loading("p", "GPU-1", 1), model=HOSTILE)))
    made.book("p", "n1", "GPU-1", 8, name=HOSTILE)
    made.pods.without_node.append(
        WaitingPod(pod=PodUid("w"), namespace=HOSTILE, name="../..", reason=HOSTILE)
    )
    made.missing.append(HOSTILE)
    made.page.news.note(denied())
    async with serving(made) as url, watched.at(url):
        for place in ("#fleet .model", "#fleet .names", "#waiting .row .text", "#banner", "#news .name"):
            await expect(page.locator(place).first).to_contain_text(HOSTILE)
        await page.locator("[data-gpu='GPU-1']").click()
        await expect(page.locator("#dialog-body")).to_contain_text(HOSTILE)
        assert await page.locator("img:not([src='/page/mark.svg'])").count() == 0
        assert all(one.startswith(url) for one in watched.requests), watched.requests


async def test_the_policy_of_the_page_lets_nothing_else_run(watched: Watched) -> None:
    """Even a script that writes HTML or loads a foreign file is stopped by the browser."""
    page = watched.page
    async with serving(await fleet()) as url, watched.at(url):
        stopped = await page.evaluate(
            "() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } }"
        )
        assert stopped
        answer = await page.evaluate("() => fetch('http://127.0.0.2/').then(() => 'let', () => 'stopped')")
        assert answer == "stopped"
        assert watched.errors
        watched.errors.clear()  # each was meant


async def test_the_page_outlives_its_placer(watched: Watched) -> None:
    """While no placer answers, the page keeps what it knows and says so; then it has what changed meanwhile."""
    page, detour = watched.page, Detour()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(detour.serving())
        async with serving(await fleet()) as detour.to:
            await stack.enter_async_context(watched.at(detour.url))
            await expect(page.locator("#link")).to_have_text("live")
            await expect(page.locator("#fleet h3")).to_have_text(["node-9", "node-10"])
        detour.to = None
        await expect(page.locator("#link")).to_contain_text("connection lost; as of")
        await expect(page.locator("#fleet h3")).to_have_text(["node-9", "node-10"])
        made = await world(state("node-10", card("GPU-10")), state("node-12", card("GPU-12")))
        detour.to = await stack.enter_async_context(serving(made))
        await expect(page.locator("#link")).to_have_text("live")
        await expect(page.locator("#fleet h3")).to_have_text(["node-10", "node-12"])
        await expect(page.locator("#figure-gpus")).to_have_text("2 on 2 nodes")
        served, detour.to = detour.to, None
        detour.cut()  # in the middle of a message, as when a proxy dies
        await expect(page.locator("#link")).to_contain_text("connection lost")
        detour.to = served
        await expect(page.locator("#link")).to_have_text("live")
    watched.errors.clear()  # the browser logs each refused connection


async def test_a_thousand_gpus(watched: Watched) -> None:
    """All are drawn, small, and the page answers keys and changes meanwhile."""
    page = watched.page
    made = await world(
        *(
            state(
                f"node-{n}",
                *(card(f"GPU-{n}-{i}", loading(f"p{n}-{i}", f"GPU-{n}-{i}", 2), index=i) for i in range(8)),
            )
            for n in range(125)
        )
    )
    for n in range(125):
        for i in range(8):
            made.book(f"p{n}-{i}", f"node-{n}", f"GPU-{n}-{i}", 8, share_pct=20)
            made.book(f"q{n}-{i}", f"node-{n}", f"GPU-{n}-{i}", 6, share_pct=20)
    async with serving(made) as url, watched.at(url):
        await expect(page.locator(".gpu")).to_have_count(1000)
        await expect(page.locator("#figure-gpus")).to_have_text("1000 on 125 nodes")
        await expect(page.locator("#density")).to_have_attribute("aria-pressed", "true")
        made.decider.ledger.forget(PodUid("q124-7"))
        await expect(page.locator("[data-gpu='GPU-124-7'] .pod")).to_have_count(1)
        await page.keyboard.press("g")
        await page.keyboard.press("End")
        await expect(page.locator(":focus")).to_have_attribute("data-gpu", "GPU-124-7")


async def test_a_real_placer_shows_its_pods_and_explains_them(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, watched: Watched
) -> None:
    """A pod that runs is on its GPU, a pod that waits says why, and the placer's explanation opens for both."""
    page = watched.page
    async with contextlib.AsyncExitStack() as stack:
        settings = await local_settings(tmp_path, "n1", stack)
        jetstream = await stack.enter_async_context(bus(nats))
        await publish(jetstream, idle_report("n1"))
        part = await stack.enter_async_context(placer(tmp_path, nats, valkey, http_port="0", **settings))
        for name, size in (("runs", "1Gi"), ("waits", "900Gi")):
            await part.submit(MANIFEST.format(name=name, seconds=1000).replace("1Gi", size))
        await stack.enter_async_context(watched.at(part.url))
        await expect(page.locator("#fleet .names").first).to_contain_text("runs")
        await expect(page.locator("#waiting")).to_contain_text("0/1 nodes are available")
        await expect(page.locator("#waiting button")).to_have_count(
            1
        )  # the other pod waits for its start at first
        await page.locator("#waiting button").click()
        await expect(page.locator("#dialog-title")).to_have_text("default/waits")
        await expect(page.locator("#dialog-body")).to_contain_text("Why it fits none of 1 nodes")
        await page.keyboard.press("Escape")
        await page.locator(".gpu").first.click()
        await page.locator("#dialog-body button").first.click()
        await expect(page.locator("#dialog-body")).to_contain_text("The pod runs on n1")
        await page.keyboard.press("Escape")
        await expect(page.locator("#news")).to_contain_text("pod.placed")


async def test_a_form_takes_the_token(watched: Watched, tmp_path: Path) -> None:
    """The page asks for a token, keeps a right one in its tab alone, and shows it nowhere; explanations use it."""
    page, file = watched.page, tmp_path / "token"
    await asyncio.to_thread(file.write_text, "right-token")
    async with serving(await fleet(), TokenFile(file)) as url:
        try:
            await page.goto(url)
            await expect(page.locator("#login")).to_contain_text("no bearer token was sent")
            await expect(page.locator("#token")).to_be_focused()
            assert await watched.barriers() == []
            for wrong, answer in (("two words", "That is no token"), ("wrong", "the token is not accepted")):
                await page.keyboard.type(wrong)
                await page.keyboard.press("Enter")
                await expect(page.locator("#login-text")).to_contain_text(answer)
                await page.locator("#token").fill("")
            await page.keyboard.type("right-token")
            await page.keyboard.press("Enter")
            await expect(page.locator("#link")).to_have_text("live")
            await expect(page.locator("#login")).to_be_hidden()
            await page.locator("#waiting button").first.click()
            await expect(page.locator("#dialog-body")).to_contain_text("'team/big' does not exist")
            await page.reload()
            await expect(page.locator("#link")).to_have_text("live")
            assert "right-token" not in await page.content() + "".join(watched.requests)
            assert await page.evaluate("localStorage.length + document.cookie.length") == 0
            await asyncio.to_thread(file.write_text, "another-token")
            await page.locator("#forget").click()
            await expect(page.locator("#login")).to_be_visible()
            assert await page.evaluate("sessionStorage.length") == 0
        finally:
            await page.goto("about:blank")
    # Chromium itself names each refusal: of no token, of a wrong one, of none again, and of a pod that is none.
    assert sorted({text.partition("status of ")[2] for text in watched.errors}) == [
        "401 (Unauthorized)",
        "404 (Not Found)",
    ]
    watched.errors.clear()
