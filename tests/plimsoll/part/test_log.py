"""Every line on a part's standard error is JSON, whoever writes it."""

import json
import subprocess
import sys
from pathlib import Path

from tests.servers.waiting import PATIENCE_S

REPOSITORY = Path(__file__).parents[3]
NOISY = "tests.plimsoll.part.programs.noisy"

SAID = (
    "a library's\nerror",
    "a library's warning",
    "while it was collected",
    "in a thread",
    "Task exception was never retrieved",
    "nobody waits for this task",
    "nobody foresaw this",
)


def test_every_line_is_json() -> None:
    """Lines of libraries, warnings, and errors of threads, tasks and the program itself; only the last ends it."""
    ended = subprocess.run(
        (sys.executable, "-m", NOISY),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert ended.returncode == 1
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    text = "\n".join(str(line["event"]) + str(line.get("exception", "")) for line in lines)
    for said in SAID:
        assert said in text, said
    assert "a request" not in text


def test_a_full_disk_under_the_log_ends_nothing() -> None:
    """The part goes on as if the log were written."""
    with Path("/dev/full").open("w") as full:
        program = (
            "from plimsoll.part.log import get_logger, log_json; import logging; log_json('info');"
            "get_logger().error('x' * 10000); logging.error('y' * 10000); print('went on', flush=True)"
        )
        ended = subprocess.run(
            (sys.executable, "-c", program),
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert ended.stdout == "went on\n"
