"""The checks of a placer, against a real one."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.doctor.finding import Verdict
from plimsoll_cli.doctor.placer import placer
from tests.placer import arrivals
from tests.placer.placers import Placer, placers
from tests.plimsoll_cli.doctor.findings import found, of, verdicts
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until

NAMESPACE = "plimsoll-system"


@pytest.fixture
async def started(
    tmp_path: Path, own_nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer
) -> AsyncIterator[Placer]:
    """A placer over servers that a test may kill."""
    given = {"nats_url": own_nats.url, "redis_url": valkey.url, "kubeconfig": str(apiserver.kubeconfig())}
    async with placers(tmp_path, **given) as running:
        yield await running.start("only")


async def test_a_placer_that_works_lacks_nodes_or_loses_the_bus(
    started: Placer, own_nats: EmbeddedServer
) -> None:
    """The findings follow the placer's state: no node, nodes, a silent one, and NATS out of reach."""
    url = f"http://127.0.0.1:{(await started.until('http ready')).port}"

    async def shows(**expected: str) -> bool:
        return verdicts(await found(placer(url, NAMESPACE))) == expected

    await until(lambda: shows(placer="ok", nodes="failed"))
    async with arrivals.bus(own_nats) as jetstream:
        await arrivals.publish(jetstream, arrivals.report("n1"))
        unknown = {"closed-nodes": "warning"}  # no object is there, so no pod is placed
        await until(lambda: shows(placer="ok", nodes="ok", **unknown))
        silent = msgspec.structs.replace(arrivals.report("n2"), heartbeat_s=0.01)
        await arrivals.publish(jetstream, silent)
        await until(lambda: shows(placer="ok", nodes="failed", **unknown))
    assert of(await found(placer(url, NAMESPACE)), "nodes").text == "1 of 2 nodes are silent for it: n2"
    await own_nats.kill()
    await until(lambda: shows(placer="failed", nodes="failed", **unknown))
    one = of(await found(placer(url, NAMESPACE)), "placer")
    assert one.text.startswith("it cannot place pods yet: ")


async def test_no_placer(tmp_path: Path) -> None:
    """No address is skipped, with the command that makes one; a dead one, a missing socket and no URL fail."""
    [one] = await found(placer("", "gpus"))
    assert (one.verdict, "kubectl -n gpus port-forward" in one.remedy) == (Verdict.SKIPPED, True)
    for where, problem in (
        ("http://127.0.0.1:1", "nothing listens there"),
        (str(tmp_path / "none.sock"), "does not exist"),
        ("ftp://h", "is no URL"),
    ):
        [one] = await found(placer(where, NAMESPACE))
        assert (one.verdict, problem in one.text) == (Verdict.FAILED, True), one
        assert "--placer or PLIMSOLL_PLACER_URL" in one.text + one.remedy
