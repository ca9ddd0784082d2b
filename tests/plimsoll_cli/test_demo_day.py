"""A kept demo goes on with pods of its own, and takes those of its reader."""

import asyncio
import os
import re
import signal
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from plimsoll.demand import parse_pod
from plimsoll.kube.models import decode_pod
from plimsoll.placer_api.client import PlacerClient
from plimsoll_cli.demo.day import LIFE_S, arrivals
from plimsoll_cli.demo.demo import MANIFESTS
from tests.placer.local.world import REPOSITORY


def drawn(seed: int) -> list[tuple[float, dict[str, Any]]]:
    """The first hundred arrivals of a seed."""
    return list(islice(arrivals(list(yaml.safe_load_all(MANIFESTS.read_text())), seed), 100))


def test_arrivals_follow_from_the_seed() -> None:
    """Each pod has a name of its own and a demand that the placer takes; equal seeds draw equal days."""
    day = drawn(7)
    assert day == drawn(7) != drawn(8)
    assert len({pod["metadata"]["name"] for _, pod in day}) == len(day)
    for pause_s, pod in day:
        assert pause_s >= 0
        parse_pod(decode_pod(msgspec.json.encode(pod)))
        args = pod["spec"]["containers"][0]["args"]
        assert LIFE_S[0] <= int(args[args.index("--seconds") + 1]) <= LIFE_S[1]


@pytest.mark.slow
async def test_a_kept_demo_goes_on_and_takes_a_pod(tmp_path: Path) -> None:
    """The command that the demo prints submits a pod, as it stands, and other pods arrive by themselves."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "demo", "--keep"),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            if b"curl " in line:
                break
        else:
            pytest.fail("the demo printed no command")
        command = line.decode().strip()
        submitted = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.DEVNULL)
        assert await submitted.wait() == 0
        [socket] = re.findall(r"--unix-socket (\S+)", command)
        async with PlacerClient(Path(socket)) as placer:
            while True:
                names = {pod.name for pod in (await placer.state()).pods if pod.phase == "Running"}
                if any(re.search(r"-\d+$", name) for name in names):
                    break
                await asyncio.sleep(0.5)
            assert "mine" in {pod.name for pod in (await placer.state()).pods}
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
