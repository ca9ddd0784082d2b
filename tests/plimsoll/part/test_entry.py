"""The arguments of a part's command: `--help`, and nothing else."""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from itertools import pairwise
from types import ModuleType

import pytest

import hook.broker.settings
import monitor.settings
import placer.pool.settings
import placer.settings
import placer.webhook.settings
from plimsoll.part.settings import PREFIX, usage
from tests.servers.waiting import PATIENCE_S

PARTS = ("hook.broker", "monitor", "placer", "placer.pool", "placer.webhook")


@functools.cache
def started(part: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A part that must end by itself at once; none has the settings with which it could work. Each runs once."""
    environment = {
        "PATH": os.environ["PATH"],
        "PLIMSOLL_BROKER_ROOT": "/dev/null",
        "PLIMSOLL_NATS_URL": "none",
    }
    command = (sys.executable, "-m", part, *arguments)
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.parametrize(("part", "argument"), [("hook.broker", "-h"), *((part, "--help") for part in PARTS)])
def test_the_help_names_the_part_and_its_settings(part: str, argument: str) -> None:
    """On standard output, with status 0, and without starting anything."""
    ended = started(part, argument)
    assert (ended.returncode, ended.stderr) == (0, "")
    about, _, _, _, *settings = ended.stdout.splitlines()
    assert about.startswith(f"`python -m {part}`: the {part.rpartition('.')[2]}, which ")
    assert settings


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("hook.broker", "PLIMSOLL_BROKER_WAIT_POLICY (default: fifo)\n"),
        ("hook.broker", "PLIMSOLL_BROKER_HTTP_PORT (default: none)\n"),
        ("monitor", "PLIMSOLL_NODE (no default)\n"),
        ("monitor", "PLIMSOLL_OUTBOX_BYTES (default: 134217728 bytes)\n"),
        ("placer", "PLIMSOLL_POLICY (default: headroom)\n"),
        ("placer", "PLIMSOLL_LOCAL_NODES (default: none)\n"),
    ],
)
def test_the_help_says_the_default_and_the_unit_of_a_setting(part: str, said: str) -> None:
    """By the name of its environment variable."""
    assert said in started(part, "--help").stdout


@pytest.mark.parametrize(
    ("settings", "prefix"),
    [
        (hook.broker.settings, hook.broker.settings.PREFIX),
        (monitor.settings, PREFIX),
        (placer.settings, PREFIX),
        (placer.pool.settings, placer.pool.settings.PREFIX),
        (placer.webhook.settings, placer.webhook.settings.PREFIX),
    ],
)
def test_the_help_describes_every_setting(settings: ModuleType, prefix: str) -> None:
    """Each variable of the part is followed by its text."""
    _, _, _, _, *lines = usage("", settings.Settings, prefix).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  PLIMSOLL_")]
    assert names == [prefix + field.name.upper() for field in dataclasses.fields(settings.Settings)]
    texts = [line for before, line in pairwise(lines) if before.startswith("  PLIMSOLL_")]
    assert len(texts) == len(names)
    assert all(text.startswith("      ") for text in texts)


@pytest.mark.parametrize(
    ("part", "arguments"),
    [
        *(("hook.broker", (argument,)) for argument in ("--root=/tmp", "run", "--hel")),
        *((part, ("--help", "--verbose")) for part in PARTS),
    ],
)
def test_an_unknown_argument_is_refused(part: str, arguments: tuple[str, ...]) -> None:
    """Status 2, and one line in the log that names the argument and the remedy."""
    ended = started(part, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    logged = json.loads(ended.stderr)
    assert logged["problem"].startswith(f"argument: '{arguments[-1]}' is unknown; ")
    assert "--help" in logged["problem"]
