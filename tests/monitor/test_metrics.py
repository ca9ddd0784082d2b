"""The metrics that the monitor serves to Prometheus."""

from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.monitor.emulated import GIB, GPU_0, MIB, program, write_node
from tests.monitor.harness import MonitorProcess, jetstream, tasks_of, until, until_true


async def scraped(port: int) -> dict[tuple[str, str, str], float]:
    """Every sample by name, GPU and phase."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        text = await answer.text()
    return {
        (sample.name, sample.labels.get("gpu", ""), sample.labels.get("phase", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("node") == "node-1.test"
    }


async def test_the_node_is_scraped_as_it_is(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The metrics have usable, used, idle and tasks per GPU, events by phase, and the outbox."""
    environment = write_node(tmp_path)
    monitor = MonitorProcess(tmp_path, nats.url, http_port=0)
    monitor.environment |= environment
    await monitor.start()
    try:
        async with jetstream(nats.url) as context, program(environment) as one:
            await until(context, lambda all_: tasks_of(all_, one.process) == ["started", "loaded"])
            await until_true(lambda: monitor.logged("metrics"))
            samples = await scraped(monitor.logged("metrics")[0]["port"])
    finally:
        await monitor.kill()
    assert samples["plimsoll_gpu_usable_bytes", GPU_0, ""] == 24 * GIB - 512 * MIB
    assert samples["plimsoll_gpu_used_bytes", GPU_0, ""] == 300 * MIB
    assert 0 <= samples["plimsoll_gpu_idle_ratio", GPU_0, ""] <= 1
    assert samples["plimsoll_gpu_tasks", GPU_0, "loaded"] == 1
    assert samples["plimsoll_gpu_tasks", GPU_0, "loading"] == 0
    assert samples["plimsoll_gpu_info", GPU_0, ""] == 1
    assert samples["plimsoll_gpu_busy_seconds_total", GPU_0, ""] >= 0
    assert samples["plimsoll_nats_up", "", ""] == 1
    assert ("plimsoll_broker_up", "", "") in samples
    assert samples["plimsoll_driver_up", "", ""] == 1
    assert samples["plimsoll_task_events_total", GPU_0, "started"] == 1
    assert samples["plimsoll_task_events_total", GPU_0, "loaded"] == 1
    assert ("plimsoll_outbox_entries", "", "") in samples
    assert ("plimsoll_outbox_bytes", "", "") in samples
    assert samples["plimsoll_outbox_dropped_total", "", ""] == 0
    assert ("plimsoll_limit_events_total", "", "") in samples
