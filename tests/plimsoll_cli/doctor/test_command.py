"""`plimsoll doctor` as a user types it: its exit codes, its table, and its JSON."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll_cli.doctor import examine as examining
from plimsoll_cli.doctor.examine import Group
from plimsoll_cli.doctor.finding import Finding, failed, ok, warning
from plimsoll_cli.doctor.report import shown

ROOT = Path(__file__).parents[3]


async def doctor(home: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command, without a cluster and at 80 columns."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "doctor", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(home), "COLUMNS": "80"},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_with_nothing_given_nothing_fails(tmp_path: Path) -> None:
    """All parts without an address are skipped, and each finding says how to have the part checked."""
    code, out, err = await doctor(tmp_path)
    assert (code, err) == (0, "")
    assert out.count("  skip  ") == out.count("→ ") == 6
    assert out.splitlines()[-1] == "2 ok, 6 skipped"


async def test_a_failure_ends_with_1_in_both_forms(tmp_path: Path) -> None:
    """The table is at most 80 columns wide and without colours when piped; the JSON has the same findings."""
    code, out, err = await doctor(tmp_path, "--nats-url", "nats://u:hush@127.0.0.1:1")
    assert (code, err) == (1, "")
    assert "  FAIL  nats" in out
    assert "hush" not in out
    assert "\x1b" not in out
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in out.splitlines())
    code, out, err = await doctor(tmp_path, "--nats-url", "nats://127.0.0.1:1", "-o", "json")
    groups = {one["name"]: one["findings"] for one in json.loads(out)["groups"]}
    assert (code, err, list(groups)) == (1, "", ["this machine", "bus", "list", "placer", "cluster"])
    assert (groups["bus"][0]["check"], groups["bus"][0]["verdict"]) == ("nats", "failed")


def test_the_table() -> None:
    """Each finding is a line, its remedy stands below it, and long words are not broken."""
    findings = (
        ok("nats", "answers"),
        warning("clock", "is wrong", "set it"),
        failed(
            "reports",
            "x" * 60 + " and more",
            "do this and then do that, whatever else you may have to do today",
        ),
    )
    lines = [line.plain for line in shown([Group(name="bus", findings=findings)], 60)]
    assert lines == [
        "bus",
        "  ok    nats        answers",
        "  warn  clock       is wrong",
        "                    → set it",
        "  FAIL  reports     " + "x" * 60,
        "                    and more",
        "                    → do this and then do that, whatever",
        "                      else you may have to do today",
        "",
        "1 ok, 1 to watch, 1 failed",
    ]


async def test_a_check_that_breaks_or_hangs_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings before an error stay, and the error is a finding itself."""

    async def breaks() -> AsyncIterator[Finding]:
        yield ok("first", "is well")
        raise KeyError("gone")

    async def hangs() -> AsyncIterator[Finding]:
        yield ok("first", "is well")
        await asyncio.Event().wait()

    monkeypatch.setattr(examining, "GROUP_S", 0.2)
    for checks, name in ((breaks, "doctor"), (hangs, "time")):
        group: Group = await examining._group("x", checks())
        first, second = group.findings
        assert (first.check, second.check) == ("first", name)


def test_findings_for_a_full_disk_end_in_one_line() -> None:
    """Findings that cannot be written are code 1 and a line with cause and remedy, not a traceback."""
    command = f"exec {sys.executable} -m plimsoll doctor > /dev/full"
    ended = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("plimsoll: standard output cannot be written (No space left on device)")
    assert len(ended.stderr.splitlines()) == 1
