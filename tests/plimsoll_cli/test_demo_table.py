"""The demo's live table on a terminal of 80 columns and 24 lines."""

import io

from rich.console import Console

from plimsoll.events import Phase, Task
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.placer_api.http import GpuRow, NodeRow, PodRow, State
from plimsoll.quantity import GIB
from plimsoll_cli.demo.table import render

NAMES = ("inference-a", "trainer-b", "best-effort")


def gpu(node: str, index: int, tasks: int) -> GpuRow:
    """A GPU whose figures are as long as they become."""
    uuid = GpuUuid(f"GPU-{node}-{index}")
    return GpuRow(
        uuid=uuid,
        index=index,
        model="NVIDIA L4",
        usable_bytes=24 * GIB,
        used_bytes=int(13.3 * GIB),
        idle_pct=100.0,
        free_bytes=int(10.2 * GIB),
        free_share_pct=100,
        score=0.534,
        tasks=tuple(
            Task(
                pid=1,
                start_ticks=1,
                gpu=uuid,
                phase=Phase.LOADED,
                used_bytes=1,
                peak_bytes=1,
                pod=PodUid(name),
            )
            for name in NAMES[:tasks]
        ),
    )


def test_it_fits_80_columns_and_cuts_no_figure() -> None:
    """Each figure is whole, each task is one word, and pods that still run come before those that ended."""
    nodes = tuple(
        NodeRow(
            node=NodeName(name),
            score=0.5,
            epoch=1,
            seq=1,
            time="",
            gpus=(gpu(name, 0, 3 if name == "charlie" else 0), gpu(name, 1, 0)),
        )
        for name in ("alpha", "bravo", "charlie")
    )
    ended = [
        PodRow(namespace="default", name=f"pod-{i}", uid=PodUid(f"{i}"), phase="Succeeded") for i in range(12)
    ]
    pods = [PodRow(namespace="default", name=name, uid=PodUid(name), phase="Running") for name in NAMES]
    console = Console(width=80, height=24, file=io.StringIO())
    console.print(render(State(nodes=nodes, pods=(*ended, *pods)), "Running: 3", console.height))
    text = console.file.getvalue()  # type: ignore[attr-defined] # the file of above
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    for words in ("charlie/0", "13.3Gi", "10.2Gi", "100 %", *(f"●{name}" for name in NAMES)):
        assert words in text
    assert [line.split()[0] for line in lines if "Running " in line + " " and "GPU" not in line][:3] == list(
        NAMES
    )
    assert "… 11 more" in text
    assert len(lines) <= console.height
