"""Fixtures for every test; each subject has its own module. See `tests/servers` for what they start."""

import gc
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from xdist.remote import Producer

from tests.scheduling import FewApiServers
from tests.slow import QUICK

pytest_plugins = ["tests.servers.blocking", "tests.servers.stores", "tests.servers.apiserver"]

settings.load_profile(QUICK)

ROOT: Final = Path(__file__).parent
LONGEST: Final = (
    "placer/test_leader.py",
    "e2e/test_resize.py",
    "chaos/test_takeover.py",
    "solo/test_run.py",
    "chaos/test_chaos.py",
    "hook/lib/test_run_ahead.py",
    "e2e/test_kills.py",
    "hook/broker/core/shares/test_latency.py",
    "hook/lib/test_hammer.py",
    "hook/lib/test_gate_hammer.py",
    "hook/lib/test_blocking.py",
    "e2e/test_leaders.py",
    "e2e/test_shares.py",
    "placer/test_sigterm.py",
    "monitor/test_exactly_once.py",
    "placer/test_readiness.py",
    "bench/test_monitor.py",
    "bench/test_placer.py",
    "monitor/test_audited.py",
    "monitor/test_health.py",
    "e2e/test_silence.py",
    "e2e/test_placement.py",
)
"""The files that take a worker longest, or that have a few long tests: half a minute and more on a quiet machine."""


@pytest.hookimpl(optionalhook=True)  # without xdist there is nothing to schedule
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FewApiServers | None:
    """With `--dist loadfile`, API servers run in half of the workers."""
    return FewApiServers(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Spare the collector what all tests are made of: it would walk these million objects again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust no authority by default, as the tests make their own.

    Each process that imports aiohttp reads the machine's 150 authorities, which takes 25 ms of CPU or twice that.
    """
    none = tmp_path_factory.mktemp("authorities") / "none.pem"
    none.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(none))
        yield


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Undo the log settings of commands that ran in this process: some silence the log, and later tests read it."""
    ours = logging.getLogger("plimsoll")
    before = ours.level
    yield
    ours.setLevel(before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers begin with the longest files, and go on with those of the most tests.

    A worker that began a long file last would be alone at the end, while the others have nothing to do.
    """
    if not hasattr(config, "workerinput"):  # there is one process
        return
    places = {ROOT / name: place for place, name in enumerate(LONGEST)}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (places.get(item.path, len(places)), -tests[item.path]))
