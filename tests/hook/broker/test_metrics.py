"""The metrics that the broker serves to Prometheus."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from hook.broker.core.audit.audit import RUN, UNHOOKED_NS
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Measured, MeasuredGpu, Register
from plimsoll.ids import PodUid
from tests.hook.broker.conftest import GIB, GPUS, MAIN, POD, Broker, registration, until
from tests.hook.broker.test_library import BUILD, DRIVER, GPU, LIBRARY, emulated_node
from tests.hook.broker.test_measured import measured

Samples = dict[tuple[str, str], float]
A, B = PodUid("pod-a"), PodUid("pod-b")
BUSY = BUILD / "bin/busy"
OF_EACH_PART = ("process_", "plimsoll_build_info")


async def test_metrics_follow_the_processes_and_end_with_the_pod(broker: Broker) -> None:
    """Series show processes, bytes, lines and denials, keep a dead process's denials, and go with the pod."""
    await broker.stop()
    await broker.start(http_port="0")
    await broker.client.register(registration(3 * GIB))
    process = await broker.spawn()
    await process.begin()
    await process.do("use 1 4096 7")
    await broker.announced(1)
    bare = await broker.spawn()
    for later_ns in (*[0] * (RUN + 2), UNHOOKED_NS):
        await broker.client.measure(measured((process, GIB), (bare, 3 * GIB), later_ns=later_ns))
    samples = await read_samples(broker)
    assert samples["plimsoll_hook_container_info", GPUS[1]] == 1
    assert samples["plimsoll_hook_excess_bytes", GPUS[0]] == 4 * GIB
    assert samples["plimsoll_hook_measured_bytes", GPUS[0]] == 4 * GIB
    assert samples["plimsoll_hook_measured_bytes", GPUS[1]] == 0
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
    samples = await read_samples(broker)
    assert samples["plimsoll_hook_processes", ""] == 0
    assert samples["plimsoll_hook_used_bytes", GPUS[1]] == 0
    assert samples["plimsoll_hook_denied_total", ""] == 7
    await broker.client.unregister(POD)
    await until(lambda: _has_only_the_journal(broker), "the pod's series are gone")


async def test_namesakes_have_series_of_their_own(broker: Broker) -> None:
    """Two commands of one name have separate series, as Prometheus refuses a series that stands twice."""
    await broker.stop()
    await broker.start(http_port="0")
    for pod in (A, B):
        await broker.client.register(registration(pod=pod, share_pct=20))
    series = [(sample.name, *sorted(sample.labels.items())) for sample in await _scraped(broker)]
    assert len(series) == len(set(series))
    assert len([name for name, *_ in series if name == "plimsoll_hook_processes"]) == 2


async def test_metrics_show_who_waits_and_how_long_it_took(broker: Broker) -> None:
    """On a node that overcommits the metrics have the grants, the waiting processes, and the lengths of waits."""
    await broker.stop()
    await broker.start(http_port="0", overcommit="true")
    await broker.client.register(registration(GIB))
    process = await broker.spawn()
    await process.begin()
    taking = asyncio.create_task(process.do("take 0 4096"))
    await until(lambda: _is_waiting(broker, 1), "it waits, as nothing was measured yet")
    assert (await read_samples(broker))["plimsoll_hook_granted_bytes", GPUS[0]] == 0
    usable = tuple(MeasuredGpu(gpu=gpu, usable_bytes=GIB, used_bytes=0) for gpu in GPUS)
    await broker.client.measure(Measured(began_ns=time.monotonic_ns(), gpus=usable, processes=()))
    assert await taking == "taken"
    assert await _is_waiting(broker, 0)
    samples = await read_samples(broker)
    assert samples["plimsoll_hook_granted_bytes", GPUS[0]] == GIB
    assert samples["plimsoll_hook_wait_seconds_bucket", "+Inf"] == 1
    assert samples["plimsoll_hook_wait_seconds_count", ""] == 1
    assert samples["plimsoll_hook_wait_seconds_sum", ""] > 0


async def _is_waiting(broker: Broker, count: int) -> bool:
    samples = await read_samples(broker)
    return [samples["plimsoll_hook_waiting", gpu] for gpu in GPUS] == [count, 0]


async def test_contending_programs_show_what_each_had(broker: Broker, tmp_path: Path) -> None:
    """Two programs that always work divide the GPU by their requests.

    The series show that, and fall when they end.
    """
    await broker.stop()
    await broker.start(http_port="0")
    for pod, share_pct in ((A, 30), (B, 70)):
        container = ContainerLines(name=MAIN, lines=(Line(gpu=GPU, line_bytes=GIB, share_pct=share_pct),))
        await broker.client.register(
            Register(pod=pod, namespace="default", name=pod, containers=(container,))
        )
    node, before, after = emulated_node(tmp_path), {}, {}

    async def is_divided() -> bool:
        """Whether some seconds of the GPU's time are divided so. A busy machine takes cores away meanwhile."""
        nonlocal before, after
        before = await _of_shares(broker)
        await until(lambda: _has_used(broker, 1 + _used_s(before)), "both work for a while")
        after = await _of_shares(broker)
        used_s = {pod: after[pod, "used_seconds_total"] - before[pod, "used_seconds_total"] for pod in (A, B)}
        return used_s[A] / (used_s[A] + used_s[B]) == pytest.approx(0.3, abs=0.05)

    async with _greedy(broker, A, node), _greedy(broker, B, node):
        await until(lambda: _has_used(broker, 0.5), "both are at work")
        await until(is_divided, "the GPU is divided 30 to 70")
    assert (after[A, "requested_ratio"], after[B, "requested_ratio"]) == (0.3, 0.7)
    assert after[A, "limit_ratio"] == after[B, "limit_ratio"] == 1
    assert 0 < after[A, "used_ratio"] < after[B, "used_ratio"] <= 1
    for name in ("waited_seconds_total", "waits_total"):
        assert after[A, name] > before[A, name]
    assert after[A, "unmet_total"] == after[B, "unmet_total"] == 0
    await until(lambda: _is_used_no_more(broker), "the use of both falls to nothing")


@contextlib.asynccontextmanager
async def _greedy(broker: Broker, pod: PodUid, node: Path) -> AsyncIterator[None]:
    """A program in the pod's container that always works: kernels of 2 ms, one after another."""
    environment = {
        "LD_PRELOAD": str(LIBRARY),
        "LD_LIBRARY_PATH": str(DRIVER.parent),
        "PLIMSOLL_EMULATOR": str(node),
        LIMITS_DIR_VARIABLE: str(broker.limits_dir(pod)),
        COUNTS_DIR_VARIABLE: str(broker.counts_dir(pod)),
    }
    program = await asyncio.create_subprocess_exec(
        BUSY, "--memory", "16M", "--kernel-ms", "10", "--gap-ms", "0", "--seconds", "3600",
        env=environment, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        program.kill()
        await program.wait()


async def _of_shares(broker: Broker) -> dict[tuple[str, str], float]:
    """The series of shares, by pod and by the name behind `plimsoll_hook_share_`."""
    found = {}
    for sample in await _scraped(broker):
        name = sample.name.removeprefix("plimsoll_hook_share_")
        if name != sample.name:
            found[sample.labels["pod"], name] = sample.value
    return found


def _used_s(shares: dict[tuple[str, str], float]) -> float:
    return min(shares[pod, "used_seconds_total"] for pod in (A, B))


async def _has_used(broker: Broker, least_s: float) -> bool:
    return _used_s(await _of_shares(broker)) >= least_s


async def _is_used_no_more(broker: Broker) -> bool:
    shares = await _of_shares(broker)
    return all(shares.get((pod, "used_ratio"), 0.0) < 0.01 for pod in (A, B))


async def test_a_taken_port_is_refused_by_name(broker: Broker) -> None:
    """A broker whose metrics port is taken ends with 2, and names variable, value and remedy."""
    await broker.stop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        await broker.launch(http_port=str(taken.getsockname()[1]))
        assert await broker.wait() == 2
    problem = broker.log("refused to start")[0]["problem"]
    assert problem.startswith("PLIMSOLL_BROKER_HTTP_PORT: ")
    assert "; choose a free port" in problem


async def read_samples(broker: Broker) -> Samples:
    """The samples by name and GPU."""
    samples = [one for one in await _scraped(broker) if not one.name.startswith(OF_EACH_PART)]
    for sample in samples:
        own = {"gpu", "le", "state", "enforcement", "whole"}
        names = {key: value for key, value in sample.labels.items() if key not in own}
        pod = {"namespace": "default", "pod": "train", "uid": POD}
        assert names in ({}, pod, pod | {"container": "main"})
    return {
        (sample.name, sample.labels.get("gpu", sample.labels.get("le", ""))): sample.value
        for sample in samples
    }


async def _scraped(broker: Broker) -> list[Sample]:
    port = broker.log("metrics_ready")[-1]["port"]
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as page:
        text = await page.text()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


async def _has_only_the_journal(broker: Broker) -> bool:
    return set(await read_samples(broker)) == {
        ("plimsoll_broker_journal_entries", ""),
        ("plimsoll_broker_disk_failures_total", ""),
    }
