"""The constants that docs/scale.md carries on to larger clusters: bytes and CPU per report, Redis memory per node.

`python -m bench.placer.constants` prints one JSON line. A busy report is one of eight GPUs with thirty tasks.
"""

import asyncio
import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Final

import msgspec
import redis.asyncio as redis

from bench.placer.objects import GPUS, node_state, report_message
from bench.placer.servers import Json
from placer.intake.reports import ReportView
from placer.stores.scores import CHUNK, ScoreList
from plimsoll.bus.subjects import STREAM
from plimsoll.envelope import decode_report
from plimsoll.events import NodeState, Phase, Task
from plimsoll.ids import ContainerName, PodUid
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import valkey_server

NODES: Final = 1000
TASKS: Final = 30


def busy_state(number: int, seq: int) -> NodeState:
    """A report of eight GPUs with thirty tasks of as many pods."""
    idle = node_state(number, seq)
    tasks = [
        Task(
            pid=1_000_000 + task,
            start_ticks=123_456_789 + task,
            gpu=idle.gpus[task % GPUS].uuid,
            phase=Phase.LOADED,
            used_bytes=2 * GIB + task,
            peak_bytes=2 * GIB + task,
            pod=PodUid(f"{number:08x}-0000-4000-8000-{task:012x}"),
            container=ContainerName("main"),
        )
        for task in range(TASKS)
    ]
    gpus = tuple(
        msgspec.structs.replace(gpu, tasks=tuple(task for task in tasks if task.gpu == gpu.uuid))
        for gpu in idle.gpus
    )
    return msgspec.structs.replace(idle, gpus=gpus)


async def redis_figures(states: list[list[NodeState]]) -> Json:
    """Memory and CPU of the list: one fill, and then one report more of each node."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-constants-") as folder:
        async with valkey_server(Path(folder)) as server:
            url = server.url.replace("valkey://", "redis://")
            scores = ScoreList(url)
            async with redis.Redis.from_url(url, protocol=2) as client:
                empty = await client.info()
                await scores.fill(states[0])
                full = await client.info()
                began_s = time.process_time()
                for at in range(0, NODES, CHUNK):
                    await scores.apply(states[1][at : at + CHUNK])
                client_s = time.process_time() - began_s
                after = await client.info()
            await scores.close()

    def cpu_s(info: Json) -> float:
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    return {
        "redis_bytes_per_node": round((full["used_memory"] - empty["used_memory"]) / NODES),
        "redis_server_us_per_report": round((cpu_s(after) - cpu_s(full)) / NODES * 1e6, 1),
        "redis_client_us_per_report": round(client_s / NODES * 1e6, 1),
    }


def intake_figures(messages: list[bytes]) -> Json:
    """CPU of decoding, checking and indexing one report, and the memory that the placer keeps of it."""
    began_s = time.process_time()
    _take_in(messages)
    cpu_s = time.process_time() - began_s
    tracemalloc.start()
    view = _take_in(messages)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(view) == len(messages)
    return {
        "intake_us": round(cpu_s / len(messages) * 1e6, 1),
        "kept_bytes_per_node": round(kept_bytes / len(messages)),
    }


def _take_in(messages: list[bytes]) -> ReportView:
    view = ReportView()
    for message in messages:
        state = decode_report(message).state
        view.apply(state)
        view.view(state.node)
    return view


async def constants() -> Json:
    """Every constant, of idle and of busy nodes."""
    found: Json = {"nodes": NODES, "gpus": GPUS, "tasks": TASKS, "stream": STREAM}
    for kind, make in (("idle", node_state), ("busy", busy_state)):
        states = [[make(number, seq) for number in range(NODES)] for seq in (1, 2)]
        messages = [report_message(state) for state in states[0]]
        subject, message, event_id = messages[0]
        # On the bus a message also carries its subject and its id as a header: HPUB and NATS/1.0 lines.
        header = len(f"NATS/1.0\r\nNats-Msg-Id: {event_id}\r\n\r\n")
        found[f"{kind}.report_bytes"] = len(message)
        found[f"{kind}.bus_bytes"] = len(message) + header + len(subject)
        figures = intake_figures([message for _, message, _ in messages]) | await redis_figures(states)
        found |= {f"{kind}.{name}": value for name, value in figures.items()}
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(constants())))
    sys.exit(0)
