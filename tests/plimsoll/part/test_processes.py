"""Identity, handles and deaths of real processes of this machine."""

import asyncio
import os
import resource

import pytest

from plimsoll.part.processes import DeathWatch, Stat, open_process, parse_stat, read_stat
from tests.servers.waiting import until


def stat(name: str, state: str = "S", ticks: str = "12345") -> str:
    """A line of /proc/<pid>/stat."""
    return f"77 ({name}) {state} " + " ".join(["1"] * 18) + f" {ticks} 1 1\n"


@pytest.mark.parametrize("name", ["python", "a b", "evil) S 1", "()"])
def test_the_start_time_is_found_whatever_the_command_is_called(name: str) -> None:
    """A command's name may hold spaces and parentheses."""
    assert parse_stat(stat(name)) == Stat(12345, has_ended=False, parent=1)


@pytest.mark.parametrize("text", ["", "77 (x) S 1", stat("x", ticks="?")])
def test_what_is_no_stat_is_none(text: str) -> None:
    """A damaged line yields no start time."""
    assert parse_stat(text) is None


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_has_ended(state: str) -> None:
    """A zombie has a start time and counts as dead."""
    assert parse_stat(stat("x", state)) == Stat(12345, has_ended=True, parent=1)


def test_a_handle_is_of_exactly_one_process() -> None:
    """This process can be opened; an earlier process of our pid, and an unused pid, cannot."""
    ours = read_stat(os.getpid())
    assert ours is not None
    handle = open_process(os.getpid(), ours.start_ticks)
    assert handle is not None
    os.close(handle)
    assert open_process(os.getpid(), ours.start_ticks - 1) is None
    assert open_process(2**22 + 1, ours.start_ticks) is None


def test_no_process_counts_as_gone_because_descriptors_ran_out() -> None:
    """A lack of file descriptors is an error, and no process counts as dead."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            read_stat(os.getpid())
        with pytest.raises(OSError, match="Too many open files"):
            open_process(os.getpid(), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_deaths_are_reported_once() -> None:
    """A process watched twice, and a process already gone, are each reported once; closing reports none."""
    dead: list[str] = []
    watch = DeathWatch(dead.append)
    watch.watch("gone", None)
    assert dead == ["gone"]
    child = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        for name in ("child", "child", "other"):
            watch.watch(name, os.pidfd_open(child.pid))
        assert "child" in watch
    finally:
        child.kill()
        await child.wait()

    async def have_died() -> bool:
        return len(dead) == 3

    await until(have_died)
    assert sorted(dead) == ["child", "gone", "other"]
    assert "child" not in watch
    watch.watch("ourselves", os.pidfd_open(os.getpid()))
    watch.close()
    assert "ourselves" not in watch
