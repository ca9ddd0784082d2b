"""`plimsoll top` and every table in tmux: snapshots of their text, keys, sizes, and a placer that goes away."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from plimsoll.ids import NodeName
from tests.placer.live.world import Detour, card, serving, state
from tests.placer.local.world import REPOSITORY
from tests.plimsoll_cli.terminal import SIZES, check_snapshot, terminal
from tests.plimsoll_cli.top.fleet import fleet

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_every_list_of_top(tmp_path: Path, width: int, height: int) -> None:
    """GPUs, pods, waiting pods, events and keys fit the screen and are as they were stored; q ends with 0."""
    async with (
        serving(await fleet()) as url,
        terminal(tmp_path, width, height, f"plimsoll top --placer {url}") as screen,
    ):
        size = f"{width}x{height}"
        check_snapshot(GOLDEN / f"top-gpus-{size}.txt", await screen.until(lambda text: "q quit" in text))
        for key, name, sign in (
            ("p", "pods", "NAMESPACE/POD STATE"),
            ("w", "waiting", "REASON"),
            ("e", "events", "TEXT"),
            ("?", "keys", "Ctrl-C"),
        ):
            await screen.press(key)
            shown = await screen.until(lambda text, sign=sign: re.sub(" +", " ", text).count(sign) > 0)  # type: ignore[misc]
            check_snapshot(GOLDEN / f"top-{name}-{size}.txt", shown)
        await screen.press("x", "q")
        await screen.until(lambda text: text.startswith("ended 0"))


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_every_table(tmp_path: Path, width: int, height: int) -> None:
    """Nodes, GPUs and pods in one screen: no line is wider, and each is as it was stored."""
    async with serving(await fleet()) as url:
        commands = "; ".join(
            f"plimsoll {words} --placer {url}; echo"
            for words in ("nodes", "gpus", "pods -A", "pods -n team", "pods")
        )
        async with terminal(tmp_path, width, height, commands) as screen:
            check_snapshot(
                GOLDEN / f"tables-{width}x{height}.txt", await screen.until(lambda text: "ended 0" in text)
            )


async def test_changes_filters_and_sizes(tmp_path: Path) -> None:
    """Nodes come by themselves, filters and sorts work, lines fit each size, and Ctrl-C leaves no trace."""
    made = await fleet()
    # A shell that exported the size of another terminal.
    command = "export LINES=24 COLUMNS=80; plimsoll top --placer"
    after = "code=$?; stty -a | grep -o -e '-*icanon' -e '-*echo '; (exit $code)"
    async with serving(made) as url, terminal(tmp_path, 90, 12, f"{command} {url}; {after}") as screen:
        await screen.until(lambda text: "3 GPUs" in text)
        made.report(state("gpu-pool-b-1", card("GPU-b")))
        await screen.until(lambda text: "gpu-pool-b-1/0" in text)
        await screen.press("/", "s", "e", "r", "v", "Enter")
        await screen.until(lambda text: "gpu-pool-b-1" not in text and "gpu-pool-a-9/1" in text)
        await screen.press("Escape", "s", "s", "r")
        await screen.until(lambda text: "by promised reversed" in text and "gpu-pool-b-1" in text)
        for width, height in ((200, 40), (20, 4), (3, 1), (80, 24)):
            await screen.tmux("resize-window", "-x", str(width), "-y", str(height))
        shown = await screen.until(lambda text: "q quit" in text and "gpu-pool-a-10" in text)
        assert len(shown) == 24
        await screen.press("C-c")
        shown = await screen.until(lambda text: "ended 0" in text)
        assert [line for line in shown if line] == ["icanon", "echo", "ended 0"]  # the terminal is as it was


async def test_ctrl_z_gives_the_terminal_back_until_fg(tmp_path: Path) -> None:
    """The shell has its screen and its settings while top is suspended; after `fg` top has single keys again."""
    async with serving(await fleet()) as url:
        command = f"export PS1='ready> '; export PLIMSOLL_PLACER_URL={url}; exec bash --norc -i"
        async with terminal(tmp_path, 80, 24, command) as screen:
            program = f"cd {REPOSITORY}; {sys.executable} -m plimsoll top"
            await screen.press(program, "Enter")
            await screen.until(lambda text: "q quit" in text)
            shell = int(await screen.tmux("list-panes", "-F", "#{pane_pid}"))
            for by_key in (True, False):
                if by_key:
                    await screen.press("C-z")
                else:
                    os.kill(await asyncio.to_thread(child_of, shell), signal.SIGSTOP)
                await screen.until(lambda text: "Stopped" in text)
                await screen.press("fg", "Enter")
                await screen.until(lambda text: "q quit" in text and "Stopped" not in text)
                await screen.press("p")
                await screen.until(lambda text: "NAMESPACE/POD" in text and "STATE" in text)
                await screen.press("g")
                await screen.until(lambda text: "NODE/GPU" in text)
            await screen.press("q")
            await screen.until(lambda text: text.rstrip().endswith("ready>"))
            await screen.press("stty -a | grep -o -e '-*icanon'", "Enter")
            await screen.until(lambda text: "\nicanon" in text)


async def test_ctrl_z_while_watching_gives_the_screen_back(tmp_path: Path) -> None:
    """The shell has its own screen and its cursor while `--watch` is suspended; `fg` shows the table again."""
    async with serving(await fleet()) as url:
        command = f"export PS1='ready> '; export PLIMSOLL_PLACER_URL={url}; exec bash --norc -i"
        async with terminal(tmp_path, 80, 24, command) as screen:
            await screen.press(f"cd {REPOSITORY}; {sys.executable} -m plimsoll gpus -w 0.2", "Enter")
            await screen.until(lambda text: "every 0.2 s" in text)
            await screen.press("C-z")
            await screen.until(lambda text: "Stopped" in text and "every 0.2 s" not in text)
            assert await screen.tmux("display-message", "-p", "#{cursor_flag}#{alternate_on}") == "10\n"
            await screen.press("fg", "Enter")
            await screen.until(lambda text: "every 0.2 s" in text and "Stopped" not in text)
            await screen.press("C-c")
            await screen.until(lambda text: text.rstrip().endswith("ready>"))


def child_of(pid: int) -> int:
    """The only child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


async def test_a_placer_that_goes_and_comes(tmp_path: Path) -> None:
    """While no placer answers, top shows what it knew and says so; then it has what changed meanwhile."""
    made, detour = await fleet(), Detour()
    async with detour.serving(), serving(made) as url:
        detour.to = url
        async with terminal(tmp_path, 80, 24, f"plimsoll top --placer {detour.url}") as screen:
            await screen.until(lambda text: "gpu-pool-a-9/0" in text)
            detour.to = None
            detour.cut()
            await screen.until(lambda text: "no connection" in text and "gpu-pool-a-9/0" in text)
            made.decider.reports.forget(NodeName("gpu-pool-a-9"))
            detour.to = url
            await screen.until(lambda text: "no connection" not in text and "gpu-pool-a-9/0" not in text)


async def test_watching_ends_with_ctrl_c(tmp_path: Path) -> None:
    """`--watch` shows changes by itself; Ctrl-C leaves the last table on the screen, and ends with 130."""
    made = await fleet()
    command = "plimsoll gpus -w 0.2 --placer"
    async with serving(made) as url, terminal(tmp_path, 80, 24, f"trap : INT; {command} {url}") as screen:
        await screen.until(lambda text: "every 0.2 s" in text and "gpu-pool-a-9" in text)
        made.report(state("gpu-pool-b-1", card("GPU-b")))
        await screen.until(lambda text: "gpu-pool-b-1" in text)
        await screen.press("C-c")
        shown = await screen.until(lambda text: "ended" in text)
        assert "ended 130" in shown
        assert any(line.startswith("gpu-pool-b-1") for line in shown)
