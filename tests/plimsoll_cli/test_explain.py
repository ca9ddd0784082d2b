"""`plimsoll explain`: its texts for people, its JSON, and its exit codes."""

import asyncio
import io
import sys
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.web import serving_tcp
from plimsoll.placer_api.explain import (
    CandidateRow,
    Check,
    Explained,
    Finding,
    GrantRow,
    NodeReasons,
    NodeShortage,
    PodState,
    Preemption,
    QueuePosition,
    ReasonCount,
    Running,
    Waiting,
)
from plimsoll.placer_api.http import Problem
from plimsoll.placer_api.relocation import MoveRow, RelocationPreview
from plimsoll.quantity import GIB
from plimsoll_cli import output, relocation
from plimsoll_cli.asking import NoPlacerError
from plimsoll_cli.doctor import report
from plimsoll_cli.doctor.examine import Group
from plimsoll_cli.doctor.finding import failed
from plimsoll_cli.explain import explanation, shown

WAITS = Explained(
    namespace="team-a",
    name="trainer",
    uid=PodUid("u"),
    state=PodState.WAITING,
    text="The pod fits none of 12 nodes: 8 Insufficient memory, and 1 more.",
    waiting=Waiting(
        queue=QueuePosition(
            place="parked",
            since="2026-01-01T00:00:00Z",
            waits_s=4000,
            attempts=3,
            priority=10,
            next_try_s=130,
            alike=2,
            wakes_on=("GPU memory is freed", "a node comes"),
        ),
        nodes=12,
        reasons=(
            ReasonCount(reason="Insufficient memory", nodes=8),
            ReasonCount(reason="tainted [red]x[/]", nodes=4),
        ),
        page=(NodeReasons(node=NodeName("n1"), reasons=("Insufficient memory", "Insufficient cpu")),),
        more="n1",
        nearest=(NodeShortage(node=NodeName("n7"), text="n7 GPU-1 lacks 3.2Gi; 2 pods of team-b hold 20Gi"),),
        preemption=Preemption(could_help=False, text="No: on no node."),
    ),
)
RUNS = Explained(
    namespace="team-a",
    name="server",
    uid=PodUid("u"),
    state=PodState.RUNNING,
    text="The pod runs on n1.",
    leads=False,
    running=Running(
        node=NodeName("n1"),
        reported="2026-01-01T00:00:00Z",
        grants=(
            GrantRow(
                container=ContainerName("main"),
                gpu=GpuUuid("GPU-1"),
                line_bytes=8 * GIB,
                share_pct=30,
                limit_pct=50,
                used_bytes=2 * GIB,
                processes=1,
                idle_pct=12.0,
                sharers=2,
            ),
            GrantRow(container=ContainerName("side"), gpu=GpuUuid("GPU-2"), line_bytes=GIB, whole=True),
        ),
        policy="headroom",
        score=0.75,
        time="2026-01-01T00:00:00Z",
        sub_scores={"main/GPU-1": {"free": 0.8, "idle": 0.9}},
        note="links of main: PIX",
        checks=(Check(by="limit", finding=Finding.LIKELY, text="main may use 50 % of the time"),),
    ),
)


def printed(explained: Explained) -> list[str]:
    """The lines for people, without colours."""
    console = Console(file=io.StringIO(), width=140)
    for part in shown(msgspec.json.encode(explained)):
        console.print(part, highlight=False, soft_wrap=isinstance(part, Text))
    text = console.file.getvalue()  # type: ignore[attr-defined] # the file of above
    return [line.rstrip() for line in text.splitlines()]


def test_a_waiting_pod() -> None:
    """The reader sees at once why the pod waits, for how long, and what would have to be freed."""
    assert printed(WAITS) == [
        "team-a/trainer  waiting",
        "The pod fits none of 12 nodes: 8 Insufficient memory, and 1 more.",
        "",
        "In the queue",
        "  parked; waits for 67 min, created 2026-01-01T00:00:00Z; tried 3 times; priority 10",
        "  pods that wait for the same: 2",
        "  tried again as soon as GPU memory is freed, or a node comes",
        "  tried again in 2 min in any case",
        "",
        "Nodes without a place, by their first reason (12)",
        " 8  Insufficient memory",
        " 4  tainted [red]x[/]",
        "",
        "Node by node, the first ones (--nodes shows more)",
        " n1  Insufficient memory, Insufficient cpu",
        "",
        "What would have to be freed, least first",
        "  n7 GPU-1 lacks 3.2Gi; 2 pods of team-b hold 20Gi",
        "",
        "Would preemption help?",
        "  No: on no node.",
    ]


def test_a_pod_that_nothing_holds_has_no_line() -> None:
    """The memory of such a pod stands beside no line: it may take all of the GPU's."""
    assert RUNS.running is not None
    unheld = msgspec.structs.replace(RUNS, running=msgspec.structs.replace(RUNS.running, unheld=True))
    [main] = [line for line in printed(unheld) if line.startswith(" main ")]
    assert "2Gi, held by nothing" in main
    assert "of 8Gi" not in main


def test_a_running_pod() -> None:
    """Decision, grants and measurements stand in one view; what is not known is a dash."""
    lines = printed(RUNS)
    assert (
        lines[2]
        == "This placer follows, and the one that leads did not answer: attempts and the queue are not known."
    )
    assert "  policy headroom, score 0.7500, decided 2026-01-01T00:00:00Z" in lines
    assert "  main/GPU-1: free 0.8, idle 0.9" in lines
    assert "  links of main: PIX" in lines
    assert " main       GPU-1  2Gi of 8Gi  30 %   50 %   1          12 %      2 containers" in lines
    assert " side       GPU-2  – of 1Gi    whole  –      –          –         0 containers" in lines
    assert " limit  likely  main may use 50 % of the time" in lines


def test_candidates_are_listed_best_first() -> None:
    """Each node with a place is shown with its GPUs, its score and the parts of the score."""
    row = CandidateRow(
        node=NodeName("n1"),
        score=0.5,
        gpus={"main": (GpuUuid("A"), GpuUuid("B"))},
        sub_scores={"main/A": {"free": 1}},
    )
    waits = msgspec.structs.replace(WAITS, waiting=Waiting(candidates=(row,), nodes=1))
    assert " n1    0.5000  main: A, B  free 1" in printed(waits)


async def run(*words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "explain", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_without_a_placer_the_message_says_how_to_name_one(tmp_path: Path) -> None:
    """No name, a wrong port and a missing socket end with 1 and a remedy."""
    code, out, err = await run("p")
    assert (code, out) == (1, "")
    assert err.startswith("plimsoll: name the placer with --placer or PLIMSOLL_PLACER_URL")
    for where in ("http://127.0.0.1:1", f"{tmp_path}/none.sock", "ftp://x", "http://", "http://[", "h:80"):
        with pytest.raises((NoPlacerError, InputError), match="--placer or PLIMSOLL_PLACER_URL"):
            await explanation(where, "default", "p", 10, None)


async def test_json_and_exit_codes_of_the_answers() -> None:
    """The answer is printed as it came with `--json`; an unknown pod ends with 2, a placer that cannot with 1."""
    asked: list[str] = []
    reason = "Insufficient memory"

    async def explain(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        name = request.match_info["name"]
        if name == "trainer":
            return web.Response(body=msgspec.json.encode(WAITS))
        status = 404 if name == "nobody" else 503
        return web.Response(status=status, body=msgspec.json.encode(Problem(message=f"{name} says so")))

    # A plain responder: the real placer's answers are tested in tests/placer, and these three never come together.
    routes = [web.get("/v1/pods/{namespace}/{name}/explain", explain)]
    async with serving_tcp(routes, "127.0.0.1", 0, "PORT") as port:
        placer = f"--placer=http://127.0.0.1:{port}/"
        code, out, _ = await run(
            "trainer", "-n", "team-a", "--json", "--nodes=3", f"--reason={reason}", placer
        )
        assert (code, msgspec.json.decode(out, type=Explained)) == (0, WAITS)
        assert asked == ["/v1/pods/team-a/trainer/explain?limit=3&reason=Insufficient+memory"]
        code, out, err = await run("trainer", "-n", "team-a", "--reason=nope", placer)
        assert (code, out) == (2, "")
        assert err == (
            "plimsoll: --reason: 'nope' is the first reason of no node; give one of: Insufficient memory; "
            "tainted [red]x[/]\n"
        )
        code, out, _ = await run("trainer", placer)
        assert (code, out.splitlines()[0]) == (0, "team-a/trainer  waiting")
        for name, expected in (("nobody", 2), ("later", 1)):
            code, _, err = await run(name, placer)
            assert (code, err) == (expected, f"plimsoll: {name} says so\n")


@pytest.mark.parametrize("name", ["..", "a/b", "a?b#c", "%2e%2e"])
async def test_odd_names_stay_names(name: str) -> None:
    """A name with special characters reaches the placer as one name, or is unknown; it never names another path."""
    asked: list[tuple[str, str]] = []

    async def explain(request: web.Request) -> web.Response:
        asked.append((request.match_info["namespace"], request.match_info["name"]))
        return web.Response(status=404, body=msgspec.json.encode(Problem(message="unknown")))

    async with serving_tcp(
        [web.get("/v1/pods/{namespace}/{name}/explain", explain)], "127.0.0.1", 0, "PORT"
    ) as port:
        with pytest.raises(PlimsollError):
            await explanation(f"http://127.0.0.1:{port}", "default", name, 10, None)
        assert asked in ([], [("default", name)])


@pytest.mark.parametrize("which", ["explain", "relocation", "doctor"])
def test_a_pipe_gets_whole_lines(
    which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However narrow the terminal is, a UUID in a table stays one word where the output is no terminal."""
    monkeypatch.setenv("COLUMNS", "40")
    uuid = "GPU-5a1c0d2e-0000-0000-0000-000000000001"
    match which:
        case "explain":
            assert RUNS.running is not None
            one, *_ = RUNS.running.grants
            grants = (replace(one, gpu=GpuUuid(uuid), container=ContainerName("c" * 63)),)
            found = replace(RUNS, running=replace(RUNS.running, grants=grants))
            output.answer(msgspec.json.encode(found), "table", shown)
        case "relocation":
            move = MoveRow(
                pod="p",
                cost=1.0,
                node=NodeName("n" * 60),
                gpus=(GpuUuid(uuid),),
                to=NodeName("o" * 60),
                to_gpus=(),
            )
            preview = RelocationPreview(text="moves", mode="on", moves=(move,), leads=True)
            output.answer(msgspec.json.encode(preview), "table", relocation.shown)
        case _:
            finding = failed("other-leases", f"{'word ' * 30}{uuid}", "mend it")
            for line in report.shown([Group(name="bus", findings=(finding,))], report.WIDTH):
                output.console().print(line, soft_wrap=True)
    text = capsys.readouterr().out
    assert uuid in text
    assert "c" * 63 in text or which != "explain"
    assert "other-leases  word word" in text or which != "doctor"
