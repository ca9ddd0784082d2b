"""Parts that cannot work say so in their last line, and end at once with the code of their help."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from monitor.observer import NO_GPU, Problems
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.logs import capture_logs
from tests.servers.waiting import PATIENCE_S

NOBODY = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
"""
HERE = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


async def ended(*words: str, **environment: str) -> tuple[int, str]:
    """Exit code and standard error of a program that ends by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, env={**HERE, **environment}, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def test_a_placer_without_nodes_says_so_and_ends() -> None:
    """It has neither a cluster nor local nodes, so it could place nothing, for ever."""
    code, errors = await ended("placer")
    [line] = [json.loads(line) for line in errors.splitlines()]
    assert (code, line["event"]) == (2, "refused to start")
    assert "PLIMSOLL_KUBECONFIG: '' leaves no nodes to place pods on; run it in a pod" in line["problem"]


async def test_a_placer_with_an_empty_list_of_nodes_says_so_and_ends(tmp_path: Path) -> None:
    """An empty list is no node either."""
    path = tmp_path / "nodes.json"
    await asyncio.to_thread(path.write_text, "[]")
    code, errors = await ended("placer", PLIMSOLL_LOCAL_NODES=str(path))
    [line] = [json.loads(line) for line in errors.splitlines()]
    assert (code, "names no nodes; name one" in line["problem"]) == (2, True), line


async def test_a_command_whose_broker_refuses_to_start_ends_with_its_words(tmp_path: Path) -> None:
    """The last words of the broker are the command's, and nothing is waited for."""
    options = ("run", "--broker-root", str(tmp_path), "--gpu-memory", "1Gi", "--", "true")
    code, errors = await ended(
        "plimsoll", *options, PLIMSOLL_BROKER_MEASURE="perhaps", PLIMSOLL_BROKER_WAIT_LONGEST_S="0"
    )
    assert code == 2
    [line] = errors.splitlines()
    assert line.startswith(
        "plimsoll run: the private broker refused to start: PLIMSOLL_BROKER_WAIT_LONGEST_S: '0'"
    )
    assert "PLIMSOLL_BROKER_MEASURE: 'perhaps'" in line
    assert str(tmp_path / "private-broker.log") in line


async def test_a_command_without_a_driver_is_bad_input(tmp_path: Path) -> None:
    """It cannot be started, which is 2 by the help; the line has the remedy."""
    code, errors = await ended(
        "plimsoll", "run", "--broker-root", str(tmp_path), "--gpu-memory", "1Gi", "--", "true"
    )
    assert code == 2
    [line] = errors.splitlines()
    assert "no NVIDIA driver answers" in line
    assert "install it, or, for the emulator, set PLIMSOLL_EMULATOR" in line


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ("p", "nothing listens there"),
        ("../../nodes/n", "pod: '../../nodes/n' cannot be a name in Kubernetes"),
    ],
)
async def test_a_command_writes_one_line(tmp_path: Path, pod: str, said: str) -> None:
    """The log of its parts is not between, and no name leads to another object."""
    path = tmp_path / "kubeconfig"
    await asyncio.to_thread(path.write_text, NOBODY)
    options = ("resize", pod, "--gpu-memory", "1Gi", "--kubeconfig", str(path))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", *options),
        env=HERE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE_S):
        output, _ = await process.communicate()
    [line] = output.decode().splitlines()
    assert said in line
    assert process.returncode == (1 if pod == "p" else 2)


async def test_a_command_refuses_misspelt_variables() -> None:
    """All of them, before anything is done."""
    code, errors = await ended("plimsoll", "status", PLIMSOLL_PLACERURL="x", PLIMSOLL_NAST_URL="y")
    assert code == 2
    assert [line.partition(": (value not shown)")[0] for line in errors.splitlines()] == [
        "plimsoll: PLIMSOLL_NAST_URL",
        "plimsoll: PLIMSOLL_PLACERURL",
    ]


@contextlib.asynccontextmanager
async def monitor(directory: Path, nats: EmbeddedServer) -> AsyncIterator[tuple[str, list[str]]]:
    """A monitor without a driver; gives the URL of its metrics, and its log so far."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "monitor"),
        env={
            **HERE,
            "PLIMSOLL_NODE": "n",
            "PLIMSOLL_NATS_URL": nats.url,
            "PLIMSOLL_STATE_DIR": str(directory / "state"),
            "PLIMSOLL_BROKER_ROOT": str(directory / "broker"),
            "PLIMSOLL_HTTP_PORT": "0",
        },
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    log: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (any("no GPU" in line for line in log) and any('"metrics"' in line for line in log)):
                log.append((await process.stderr.readline()).decode())
                assert log[-1], log
        port = next(json.loads(line)["port"] for line in log if '"metrics"' in line)
        yield f"http://127.0.0.1:{port}/metrics", log
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_monitor_without_a_driver_has_a_metric_and_a_remedy(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """It runs on, as the driver may come; the log says what to do, and a metric can alert."""
    async with monitor(tmp_path, nats) as (url, log), aiohttp.ClientSession() as http:
        [line] = [line for line in log if "no GPU" in line]
        assert (
            "install NVIDIA's driver on this node, or, in a pod, give it the runtime class `nvidia`" in line
        )
        async with http.get(url) as answer:
            assert 'plimsoll_driver_up{node="n"} 0.0' in await answer.text()


def test_problems_beside_each_other_are_told_once() -> None:
    """A full disk on a node without a driver is two lines, not two lines a second; only what is over is forgotten."""
    problems = Problems()
    with capture_logs() as logs:
        for _ in range(3):
            problems.report(f"{NO_GPU}: none")
            problems.report("the disk is full")
        assert not problems.end(has_driver=False)
        problems.report(f"{NO_GPU}: none")
        problems.report("the disk is full")
        assert problems.end(has_driver=True)
    assert [line["event"] for line in logs] == [f"{NO_GPU}: none", "the disk is full", "the disk is full"]


_MONITOR = (("monitor",), {"PLIMSOLL_NODE": "n", "PLIMSOLL_STATE_DIR": "{}"})
_RUN: tuple[tuple[str, ...], dict[str, str]] = (("plimsoll", "run", "--broker-root", "{}", "--", "true"), {})


@pytest.mark.parametrize(
    ("started", "kind", "remedy"),
    [
        (_MONITOR, "full", "; free some room on its disk"),
        (_RUN, "full", "; free some room on its disk"),
        (_MONITOR, "read-only", "; see in the kernel's log (`dmesg`) why its disk is read-only"),
        (_RUN, "read-only", "; name a directory of your own"),
    ],
)
async def test_a_disk_that_is_full_or_read_only_is_one_line(
    tmp_path: Path, started: tuple[tuple[str, ...], dict[str, str]], kind: str, remedy: str
) -> None:
    """The line has the remedy; no traceback comes with it."""
    words, environment = started
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = await asyncio.create_subprocess_exec("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk))
    if await mount.wait() != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        if kind == "full":
            with contextlib.suppress(OSError):
                await asyncio.to_thread((disk / "filler").write_bytes, bytes(2**20))
        else:
            protect = await asyncio.create_subprocess_exec("mount", "-o", "remount,ro", str(disk))
            assert await protect.wait() == 0
        place = str(disk / "own")
        given = {name: value.format(place) for name, value in environment.items()}
        code, errors = await ended(*(word.format(place) for word in words), **given)
        [line] = errors.splitlines()
        assert (code, remedy in line) == (2, True), line
    finally:
        await (await asyncio.create_subprocess_exec("umount", "--lazy", str(disk))).wait()
