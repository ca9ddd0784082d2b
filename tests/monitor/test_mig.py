"""MIG instances over the emulated driver: each is a GPU of its own, and the card is none."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
from nats.js import JetStreamContext

from monitor.advertise import capacity
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.contract import GPU_MEMORY, GPU_SHARE
from plimsoll.events import Limit
from plimsoll.ids import GpuUuid
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.announcements import POD
from tests.monitor.emulated import GIB, MIB, book, program
from tests.monitor.harness import EMULATOR, Message, MonitorProcess, jetstream, tasks_of, until
from tests.monitor.test_detection import UNTIMED
from tests.monitor.test_emulator import newest, told_of
from tests.monitor.test_health import changes, classes, listening, unhealthy
from tests.monitor.test_hooked import CONTAINER, LIBRARY, brokering
from tests.monitor.test_info import infos

CARD: Final = "GPU-5a1c0d2e-0000-0000-0000-000000000001"
WHOLE: Final = "GPU-5a1c0d2e-0000-0000-0000-000000000002"
SMALL: Final = "MIG-5a1c0d2e-0000-0000-0000-000000000011"
LARGE: Final = "MIG-5a1c0d2e-0000-0000-0000-000000000012"
SMALL_PLACE: Final = "2"
NODE: Final = f"""
sample = 20ms
[gpu 0]
uuid = {CARD}
model = NVIDIA A100-SXM4-40GB
memory = 40Gi
reserved = 512Mi
context = 300Mi
numa = 1
cpus = 0-3
mig = yes
[gpu 1]
uuid = {WHOLE}
memory = 16Gi
reserved = 256Mi
[mig 0 0]
uuid = {SMALL}
profile = 1g.5gb
memory = 4864Mi
[mig 0 1]
uuid = {LARGE}
profile = 3g.20gb
memory = 19968Mi
"""


@contextlib.asynccontextmanager
async def divided(
    tmp_path: Path, url: str, **settings: object
) -> AsyncIterator[tuple[MonitorProcess, dict[str, str], JetStreamContext]]:
    """A monitor on a node of a divided card and a whole one, and a reader of the stream."""
    path = tmp_path / "node.conf"
    path.write_text(NODE)
    environment = {"PLIMSOLL_EMULATOR": str(path), "LD_LIBRARY_PATH": str(EMULATOR)}
    monitor = MonitorProcess(tmp_path, url, **settings)
    monitor.environment |= environment
    async with jetstream(url) as context:
        await monitor.start()
        try:
            yield monitor, environment, context
        finally:
            await monitor.kill()


def on(environment: dict[str, str], gpu: str) -> dict[str, str]:
    """The environment of a program that has this GPU alone."""
    return {**environment, "CUDA_VISIBLE_DEVICES": gpu}


def shown(messages: list[Message]) -> list[str]:
    """The GPUs of the newest report."""
    return list(newest(messages))


def struck(messages: list[Message], what: str, xid: int | None = None) -> set[str]:
    """The GPUs that have had this condition."""
    return {
        one.gpu
        for one in changes(messages)
        if (what, xid) in {(each.what, each.xid) for each in one.conditions}
    }


async def test_an_instance_is_a_gpu_and_its_card_is_none(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Reports, hardware and advertised resources have the instances beside the whole cards, and name their card."""
    async with divided(tmp_path, nats.url) as (_, _, context):
        messages = await until(context, lambda all_: shown(all_) != [])
        found = newest(messages)
    assert list(found) == [SMALL, LARGE, WHOLE]
    assert [gpu.mig_parent for gpu in found.values()] == [CARD, CARD, None]
    assert [gpu.index for gpu in found.values()] == [0, 0, 1]
    assert found[SMALL].model == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert [gpu.usable_bytes // MIB for gpu in found.values()] == [4864, 19968, 16128]
    assert {gpu.idle_pct for gpu in found.values()} == {100.0}
    offered = capacity(found.values(), 1, 30)
    assert (offered[GPU_MEMORY], offered[GPU_SHARE]) == (str((4864 + 19968 + 16128) * MIB), "300")
    (info, *_) = infos(messages)
    assert [(gpu.uuid, gpu.mig, gpu.mig_parent, gpu.links) for gpu in info.gpus] == [
        (SMALL, True, CARD, ()),
        (LARGE, True, CARD, ()),
        (WHOLE, False, None, ()),
    ]
    assert {(gpu.pci, gpu.numa, gpu.cores) for gpu in info.gpus[:2]} == {("00000000:17:00.0", 1, "0-3")}


async def test_tasks_live_on_their_instance(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A program is a task of its instance alone, with the instance's memory, from its start to its end."""
    async with (
        divided(tmp_path, nats.url) as (_, environment, context),
        program(on(environment, SMALL)) as one,
        program(on(environment, LARGE)) as two,
    ):
        for each, more_mib in ((one, 1024), (two, 8192)):
            await until(context, lambda all_, each=each: tasks_of(all_, each.process)[-1:] == ["loaded"])  # type: ignore[misc]
            await each.do(f"alloc {more_mib}")
        await until(
            context,
            lambda all_: all(tasks_of(all_, each.process).count("loaded") == 2 for each in (one, two)),
        )
        messages = await until(context, lambda all_: newest(all_)[LARGE].used_bytes == (8192 + 300) * MIB)
        found = newest(messages)
        assert told_of(messages, one, "loaded").gpu == SMALL
        assert told_of(messages, two, "loaded").gpu == LARGE
        assert {uuid: [task.pid for task in gpu.tasks] for uuid, gpu in found.items()} == {
            SMALL: [one.process.pid],
            LARGE: [two.process.pid],
            WHOLE: [],
        }
        assert found[SMALL].used_bytes == (1024 + 300) * MIB
        await two.kill()
        messages = await until(context, lambda all_: tasks_of(all_, two.process)[-1:] == ["exited"])
        assert tasks_of(messages, one.process) == ["started", "loaded", "loaded"]


async def test_a_container_on_an_instance_is_held_to_its_line(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The library refuses what passes the line on the instance, and the task has its pod."""
    async with (
        brokering(tmp_path / "broker") as broker,
        divided(tmp_path, nats.url, **UNTIMED) as (_, environment, context),
    ):
        container = ContainerLines(name=CONTAINER, lines=(Line(gpu=GpuUuid(LARGE), line_bytes=4 * GIB),))
        request = Register(pod=POD, namespace="default", name="train", containers=(container,))
        (directories,) = (await broker.client.register(request)).containers
        hooked = on(environment, LARGE) | {
            "LD_PRELOAD": str(LIBRARY),
            LIMITS_DIR_VARIABLE: directories.limits_dir,
            COUNTS_DIR_VARIABLE: directories.counts_dir,
        }
        async with program(hooked) as one:
            messages = await until(context, lambda all_: tasks_of(all_, one.process)[-1:] == ["loaded"])
            task = told_of(messages, one, "loaded")
            assert (task.gpu, task.pod, task.container) == (LARGE, POD, CONTAINER)
            await one.do("refused 8192")
            messages = await until(context, lambda all_: any(each.what == "limit.denied" for each in all_))
        (denied,) = [each for each in messages if each.what == "limit.denied"]
        limit = msgspec.json.decode(denied.event.data, type=Limit)
        assert (limit.gpu, limit.line_bytes, limit.pod) == (LARGE, 4 * GIB, POD)


async def test_errors_of_a_card_are_those_of_its_instances(tmp_path: Path, nats: EmbeddedServer) -> None:
    """An XID of the card, its figures and its loss concern every instance; an XID of one instance that one alone."""
    async with divided(tmp_path, nats.url, health_hold_s=0.2) as (monitor, environment, context):
        await listening(monitor, context, environment, WHOLE)
        await book(environment, "xid", SMALL_PLACE, "43")
        await until(context, lambda all_: struck(all_, "xid", 43) == {SMALL})
        await book(environment, "xid", "0", "48")
        messages = await until(context, lambda all_: {SMALL, LARGE} <= unhealthy(all_).keys())
        assert struck(messages, "xid", 43) == {SMALL}
        assert struck(messages, "xid", 48) == {SMALL, LARGE}
        await book(environment, "fault", "0", "remap", "1")
        await until(context, lambda all_: struck(all_, "row-remap") == {SMALL, LARGE})
        await book(environment, "reset", "0")
        await book(environment, "lose", "0")
        await until(context, lambda all_: shown(all_) == [WHOLE])
        await book(environment, "find", "0")
        messages = await until(
            context,
            lambda all_: shown(all_) == [SMALL, LARGE, WHOLE] and not {SMALL, LARGE} & unhealthy(all_).keys(),
        )
        assert struck(messages, "lost") == {SMALL, LARGE}


async def test_an_instance_that_was_ended_is_gone_and_not_lost(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Administrators end and make instances while the monitor runs: no fault, and none stays in the reports."""
    async with divided(tmp_path, nats.url) as (_, environment, context):
        await until(context, lambda all_: shown(all_) == [SMALL, LARGE, WHOLE])
        await book(environment, "end", SMALL_PLACE)
        messages = await until(context, lambda all_: "info" in classes(all_, SMALL))
        assert classes(messages, SMALL) == ["info"]
        await until(context, lambda all_: shown(all_) == [LARGE, WHOLE])
        assert unhealthy(await until(context, bool)) == {}
        await book(environment, "make", SMALL_PLACE)
        messages = await until(context, lambda all_: shown(all_) == [SMALL, LARGE, WHOLE])
        assert classes(messages, SMALL) == ["info"]
        assert unhealthy(messages) == {}
