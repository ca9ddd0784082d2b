"""`node.info`: the node's hardware in the stream, for subscribers that come at any time."""

from pathlib import Path

import msgspec
from nats.js import JetStreamContext

from plimsoll.bus.subjects import STREAM, info_subject
from plimsoll.gpu_events import NodeInfo
from plimsoll.ids import NodeName
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.emulated import GPU_0, GPU_1, NODE, book
from tests.monitor.harness import EMULATOR, Message, MonitorProcess, jetstream, until
from tests.monitor.test_emulator import newest, node

LINKED = (
    NODE.replace("[gpu 1]", "pci = 0000:17:00.0\nnuma = 0\ncpus = 0-3\n[gpu 1]")
    + "pci = 0000:65:00.0\nnuma = 1\ncpus = 4-7,68\n[link 0 1]\npath = PHB\n"
)


def infos(messages: list[Message]) -> list[NodeInfo]:
    """All `node.info` events."""
    bodies = [message.event.data for message in messages if message.what == "node.info"]
    return [msgspec.json.decode(body, type=NodeInfo) for body in bodies]


async def last(context: JetStreamContext) -> NodeInfo:
    """The messages that a new subscriber gets now."""
    message = await context.get_last_msg(STREAM, info_subject(NodeName("node-1.test")))
    return msgspec.json.decode(Message(message.subject or "", message.data or b"").event.data, type=NodeInfo)


def reports_gpus(message: Message) -> bool:
    """Whether it is a report of the node in which the driver has answered."""
    return message.what == "node.state" and bool(message.report.state.gpus)


async def test_a_late_subscriber_reads_the_hardware(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Positions, near cores and links are those of the node; the event comes before the first report of GPUs."""
    (tmp_path / "node.conf").write_text(LINKED)
    monitor = MonitorProcess(tmp_path, nats.url, heartbeat_s=17)
    monitor.environment |= {
        "PLIMSOLL_EMULATOR": str(tmp_path / "node.conf"),
        "LD_LIBRARY_PATH": str(EMULATOR),
    }
    async with jetstream(nats.url) as context:
        await monitor.start()
        try:
            # A driver that answers late delays both: the node's first report has no GPU then, and no event before it.
            messages = await until(context, lambda all_: any(map(reports_gpus, all_)))
            assert infos(messages[: [reports_gpus(one) for one in messages].index(True)])
            found = await last(context)
        finally:
            await monitor.kill()
    one, two = found.gpus
    assert (found.heartbeat_s, found.labels, bool(found.driver)) == (17, {}, True)
    assert [(gpu.uuid, gpu.numa, gpu.cores) for gpu in found.gpus] == [
        (GPU_0, 0, "0-3"),
        (GPU_1, 1, "4-7,68"),
    ]
    assert one.pci.endswith("17:00.0")
    assert [(link.gpu, link.path) for link in (*one.links, *two.links)] == [(GPU_1, "PHB"), (GPU_0, "PHB")]


async def test_a_change_is_published_and_nothing_else(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A lost GPU leaves the hardware and comes back to it; heartbeats repeat nothing."""
    async with node(tmp_path, nats.url, heartbeat_s=0.3) as (_, environment, context):
        messages = await until(context, lambda all_: len(all_) >= 5)
        assert len(infos(messages)) == 1
        await book(environment, "lose", "0")
        messages = await until(context, lambda all_: len(infos(all_)) == 2)
        assert [gpu.uuid for gpu in infos(messages)[-1].gpus] == [GPU_1]
        await book(environment, "find", "0")
        messages = await until(context, lambda all_: len(infos(all_)) == 3)
        assert infos(messages)[-1] == infos(messages)[0]
        assert set(newest(await until(context, lambda all_: all_[-1].what == "node.state"))) == {GPU_0, GPU_1}
