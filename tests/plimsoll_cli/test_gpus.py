"""`plimsoll gpus`: its table at 80 columns, its filters and its JSON, and a real placer behind it."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.part.errors import InputError
from plimsoll.placer_api.http import GpuRow, NodeRow
from plimsoll.quantity import GIB
from plimsoll_cli.asking import NoPlacerError
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.gpus import nodes_of, shown
from tests.placer.api.test_http_api import served
from tests.placer.arrivals import bus, eventually, publish, report
from tests.placer.core.worlds import gpu
from tests.placer.local.world import REPOSITORY
from tests.placer.test_app import MANIFEST

NOW = "2026-01-01T00:00:00Z"
ROW = GpuRow(
    uuid=GpuUuid("GPU-5a1c0d2e-0000-0000-0000-000000000001"),
    index=0,
    model="NVIDIA L4",
    usable_bytes=22 * GIB,
    used_bytes=3 * GIB,
    idle_pct=87.5,
    free_bytes=12 * GIB,
    free_share_pct=40,
    score=0.5,
)
NODE = NodeRow(node=NodeName("gpu-pool-a-node-17"), score=0.5, epoch=1, seq=1, time=NOW, gpus=(ROW,))


def ill(uuid: str, what: str, health: HealthClass, text: str) -> GpuHealth:
    """A GPU with one condition."""
    one = Condition(what=what, health=health, since=NOW, text=text)
    return GpuHealth(
        gpu=GpuUuid(uuid), index=1, model="NVIDIA L4", health=health, since=NOW, conditions=(one,)
    )


def test_a_gpu_is_a_line_of_cells_without_blanks() -> None:
    """Each figure is one word under its heading, and the line fits a terminal of 80 columns."""
    heads, line = shown([NODE])
    cells = ["gpu-pool-a-node-17", "0", "3Gi/22Gi", "12Gi", "40%", "88%", "0"]
    assert dict(zip(heads.split(), line.split(), strict=True)) == dict(
        zip(("NODE", "GPU", "MEMORY", "FREE", "SHARE", "IDLE", "TASKS"), cells, strict=True)
    )
    assert max(len(heads), len(line)) <= 80


def test_wide_lines_name_score_uuid_and_model() -> None:
    """The model, whose name has blanks, is last."""
    heads, line = shown([NODE], wide=True)
    assert heads.split()[-3:] == ["SCORE", "UUID", "MODEL"]
    assert line.endswith(f"0.500  {ROW.uuid}  NVIDIA L4")


def test_what_keeps_pods_away_is_named() -> None:
    """A silent node, a GPU with an error, and a lost GPU, which no report measures; a healthy one says nothing."""
    fatal = ill(ROW.uuid, "xid", HealthClass.FATAL, "XID 79: the GPU has fallen off the bus")
    lost = ill("GPU-2", "lost", HealthClass.FATAL, "NVML does not list it any more")
    well = replace(ill("GPU-3", "", HealthClass.HEALTHY, ""), conditions=())
    silent = replace(NODE, node=NodeName("n2"), silent=True)
    third = replace(NODE, node=NodeName("n3"), gpus=(replace(ROW, uuid=GpuUuid("GPU-3")),), health=(well,))
    _, first, second, of_silent, of_well = shown([replace(NODE, health=(fatal, lost)), silent, third])
    assert first.endswith("fatal: XID 79: the GPU has fallen off the bus")
    assert second.split() == [NODE.node, "1", *"–––––", "fatal:", *lost.reason.split()]
    assert of_silent.endswith("node silent")
    assert of_well.split()[-1] == "0"


def test_more_use_than_promises_leaves_nothing_free() -> None:
    """Where a foreign process took what nobody promised, the free memory is 0 and not less."""
    _, line = shown([replace(NODE, gpus=(replace(ROW, free_bytes=-GIB),))])
    assert line.split()[3] == "0"


def test_without_gpus_there_are_no_lines() -> None:
    """Not even headings."""
    assert list(shown([])) == list(shown([replace(NODE, gpus=())])) == []


@pytest.mark.parametrize("where", ["", "nonsense://x", "/nonexistent/placer.sock", "http://127.0.0.1:1"])
async def test_without_a_placer_the_message_says_how_to_name_one(where: str) -> None:
    """No address, a wrong one, and one where nobody listens."""
    with pytest.raises((NoPlacerError, InputError), match="--placer or PLIMSOLL_PLACER_URL"):
        await nodes_of(where)


def test_labels_of_a_gpu_are_at_the_end_of_its_line() -> None:
    """The labels that keep pods away are shown with their namespaces, after what is wrong with the GPU."""
    labelled = replace(ROW, labels=("affinity=a/x", "exclusion=a/y"))
    silent = replace(NODE, gpus=(labelled,), silent=True)
    _, line = shown([silent])
    assert line.endswith("node silent; labels affinity=a/x exclusion=a/y")


async def gpus(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "gpus", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_help_is_asked_for_as_everywhere() -> None:
    """`-h` and `--help` say the same."""
    code, out, _ = await gpus("-h")
    assert (code, out) == (0, (await gpus("--help"))[1])
    assert "--model" in out


async def test_a_real_placer_is_asked(tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer) -> None:
    """All nodes are listed, a promise takes from the free memory, and filters choose."""
    async with served(tmp_path, nats, valkey) as (part, _):

        async def names() -> list[str]:
            return [str(row.node) for row in await nodes_of(part.url)]

        await eventually(names, ["n1", *(f"r{i}" for i in range(9))])
        [before] = (await nodes_of(part.url, "n1"))[0].gpus
        await part.submit(MANIFEST.format(name="runs", seconds=1000).replace("1Gi", "10Gi"))

        async def taken_bytes() -> int:
            [now] = (await nodes_of(part.url, "n1"))[0].gpus
            return before.free_bytes - now.free_bytes

        await eventually(taken_bytes, 10 * GIB)
        code, out, _ = await gpus("--placer", part.url)
        assert (code, len(out.splitlines())) == (0, 11)
        code, out, _ = await gpus("--placer", part.url, "--node", "r3", "-o", "json")
        [row] = json.loads(out)["items"]
        assert (code, row["node"], row["gpus"][0]["uuid"]) == (0, "r3", "GPU-r3")
        async with bus(nats) as jetstream:
            other = replace(gpu("GPU-other"), index=1, model="NVIDIA T4")
            await publish(jetstream, report("mixed", gpus=(gpu("GPU-mixed"), other)))

        async def found() -> list[tuple[str, list[str]]]:
            nodes = await nodes_of(part.url, model="NVIDIA T4")
            return [(str(node.node), [str(one.uuid) for one in node.gpus]) for node in nodes]

        await eventually(found, [("mixed", ["GPU-other"])])
        code, out, err = await gpus("--placer", part.url, "--model", "NVIDIA nothing")
        assert (code, out, err.strip()) == (0, "", "plimsoll: no GPU is like that")
    code, out, err = await gpus("--placer", part.url)
    assert (code, out) == (1, "")
    assert "no placer answers at" in err
