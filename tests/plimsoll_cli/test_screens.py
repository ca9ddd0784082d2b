"""`plimsoll status`, `explain`, `events` and `doctor` in tmux: snapshots of their text at two sizes."""

import shlex
import sys
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from plimsoll.part.web import serving_tcp
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.plimsoll_cli.terminal import SIZES, check_snapshot, terminal
from tests.plimsoll_cli.test_events import publish_all
from tests.plimsoll_cli.test_explain import RUNS, WAITS

GOLDEN = Path(__file__).parent / "golden"
FIXED = f"{shlex.quote(sys.executable)} -m tests.plimsoll_cli.screens"
ANSWERS = {"trainer": WAITS, "server": RUNS}


async def check(folder: Path, name: str, width: int, height: int, command: str) -> None:
    """Compare the screen after a command with the stored one; the command succeeds."""
    folder.mkdir()  # noqa: ASYNC240 - takes no time
    async with terminal(folder, width, height, command) as screen:
        shown = await screen.until(lambda text: "\nended " in text)
    assert "ended 0" in shown
    check_snapshot(GOLDEN / f"{name}-{width}x{height}.txt", shown)


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_status_and_doctor(tmp_path: Path, width: int, height: int) -> None:
    """Each line fits the terminal, and reasons and remedies are whole."""
    for what in ("status", "doctor"):
        await check(tmp_path / what, what, width, height, f"{FIXED} {what}")


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_explain(tmp_path: Path, width: int, height: int) -> None:
    """A pod that waits and one that runs: columns are folded within the terminal."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(ANSWERS[request.match_info["name"]]))

    route = web.get("/v1/pods/{namespace}/{name}/explain", answer)
    async with serving_tcp([route], "127.0.0.1", 0, "PORT") as port:
        for name in ANSWERS:
            command = f"plimsoll explain {name} --placer http://127.0.0.1:{port}"
            await check(tmp_path / name, f"explain-{name}", width, height, command)


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_events(tmp_path: Path, nats: EmbeddedServer, width: int, height: int) -> None:
    """An event is one line, cut to the terminal."""
    await publish_all(nats.url)
    await check(tmp_path / "events", "events", width, height, f"plimsoll events --nats-url {nats.url}")
