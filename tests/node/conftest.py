"""The node of a whole run, and a namespace per test. Tests that use them have the marker `node`."""

import time
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.node import requirements
from tests.node.node import Node, running_node
from tests.node.places import directory
from tests.node.progress import say


@pytest.fixture(scope="session")
async def node() -> AsyncIterator[Node]:
    """A real node, Ready. One node for the run. A test that kills a part starts it again."""
    place = directory()
    if place is None:
        reason = requirements.obstacle() or "it has namespaces of its own; remedy: `make e2e-kube`"
        pytest.skip(f"no node here: {reason}")
    began_s = time.monotonic()
    async with running_node(place) as running:
        say(f"node Ready after {time.monotonic() - began_s:.1f} s")
        yield running


@pytest.fixture
async def space(node: Node) -> AsyncIterator[str]:
    """A fresh namespace with its service account, removed with its pods after the test."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await node.until_account(name)
    yield name
    await node.api.must("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(autouse=True)
def timed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tell the time of each step."""
    began_s = time.monotonic()
    yield
    if request.node.get_closest_marker("node"):
        say(f"{request.node.name}: {time.monotonic() - began_s:.1f} s")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell a failure at once, as a run takes minutes, and what comes later may hide it."""
    if report.failed and "node" in report.keywords:
        say(f"{report.nodeid} failed:\n{report.longreprtext}")
