"""What Prometheus finds."""

import asyncio
import socket

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from hook.broker.core.overheads import RUN
from plimsoll.brokerwire import Measured, MeasuredGpu
from tests.hook.broker.conftest import GIB, GPUS, POD, Broker, registration, until
from tests.hook.broker.test_measured import measured

Samples = dict[tuple[str, str], float]


async def test_metrics_follow_the_processes_and_end_with_the_pod(broker: Broker) -> None:
    """Series show processes, bytes, lines and denials, count the dead's denials on, and go with the pod."""
    await broker.stop()
    await broker.start(metrics_port="0")
    await broker.client.register(registration(3 * GIB))
    process = await broker.spawn()
    await process.begin()
    await process.do("use 1 4096 7")
    await broker.announced(1)
    bare = await broker.spawn()
    for _ in range(RUN + 2):
        await broker.client.measure(measured((process, GIB), (bare, 3 * GIB)))
    samples = await _samples(broker)
    assert samples["plimsoll_hook_excess_bytes", GPUS[0]] == 4 * GIB
    assert samples["plimsoll_hook_violated_total", ""] == 1
    assert samples["plimsoll_hook_unenforced_total", ""] == 1
    assert samples["plimsoll_hook_processes", ""] == 1
    assert samples["plimsoll_hook_used_bytes", GPUS[0]] == 0
    assert samples["plimsoll_hook_used_bytes", GPUS[1]] == 4096
    assert samples["plimsoll_hook_line_bytes", GPUS[1]] == 3 * GIB
    assert samples["plimsoll_hook_denied_total", ""] == 7
    assert samples["plimsoll_broker_journal_entries", ""] == 3
    await process.kill()
    await broker.until_vacant()
    samples = await _samples(broker)
    assert samples["plimsoll_hook_processes", ""] == 0
    assert samples["plimsoll_hook_used_bytes", GPUS[1]] == 0
    assert samples["plimsoll_hook_denied_total", ""] == 7
    await broker.client.unregister(POD)
    await until(lambda: _has_only_the_journal(broker), "the pod's series are gone")


async def test_metrics_show_who_waits_and_how_long_it_took(broker: Broker) -> None:
    """Where the node overcommits: what is granted, how many wait where, and the length of waits that are over."""
    await broker.stop()
    await broker.start(metrics_port="0", overcommit="true")
    await broker.client.register(registration(GIB))
    process = await broker.spawn()
    await process.begin()
    taking = asyncio.create_task(process.do("take 0 4096"))
    await until(lambda: _is_waiting(broker, 1), "it waits, as nothing was measured yet")
    assert (await _samples(broker))["plimsoll_hook_granted_bytes", GPUS[0]] == 0
    usable = tuple(MeasuredGpu(gpu=gpu, usable_bytes=GIB, used_bytes=0) for gpu in GPUS)
    await broker.client.measure(Measured(gpus=usable, processes=()))
    assert await taking == "taken"
    assert await _is_waiting(broker, 0)
    samples = await _samples(broker)
    assert samples["plimsoll_hook_granted_bytes", GPUS[0]] == GIB
    assert samples["plimsoll_hook_wait_seconds_bucket", "+Inf"] == 1
    assert samples["plimsoll_hook_wait_seconds_count", ""] == 1
    assert samples["plimsoll_hook_wait_seconds_sum", ""] > 0


async def _is_waiting(broker: Broker, count: int) -> bool:
    samples = await _samples(broker)
    return [samples["plimsoll_hook_waiting", gpu] for gpu in GPUS] == [count, 0]


async def test_a_taken_port_is_refused_by_name(broker: Broker) -> None:
    """A broker told to serve metrics where somebody listens ends with 2 and names variable, value and remedy."""
    await broker.stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        await broker.launch(metrics_port=str(taken.getsockname()[1]))
        assert await broker.wait() == 2
    problem = broker.log("refused to start")[0]["problem"]
    assert problem.startswith("PLIMSOLL_BROKER_METRICS_PORT: ")
    assert "; choose a free port" in problem


async def _samples(broker: Broker) -> Samples:
    """By name and GPU."""
    port = broker.log("metrics_ready")[-1]["port"]
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as page:
        text = await page.text()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    for sample in samples:
        names = {key: value for key, value in sample.labels.items() if key not in {"gpu", "le"}}
        assert names in ({}, {"namespace": "default", "pod": "train", "container": "main"})
    return {
        (sample.name, sample.labels.get("gpu", sample.labels.get("le", ""))): sample.value
        for sample in samples
    }


async def _has_only_the_journal(broker: Broker) -> bool:
    return set(await _samples(broker)) == {("plimsoll_broker_journal_entries", "")}
