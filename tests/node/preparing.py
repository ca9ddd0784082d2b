"""All that a run on a real node needs, built or fetched once: packages, the control plane's programs, and images."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster import assets, build
from tests.node import requirements
from tests.node.places import ROOT
from tests.node.progress import say
from tests.servers.debian import MissingPackageError, debian_file

OUT_OF_REACH = 75
"""The exit status of `tools/image-base` when no Debian mirror answers (EX_TEMPFAIL)."""


class NotHereError(Exception):
    """No node can run on this machine, whatever is installed; the message has the reason and the remedy."""


class BrokenError(Exception):
    """A step that should work on any machine failed, be it for a mirror out of reach; the message names it."""


def prepare(*, images: bool) -> None:
    """Make everything available that a node needs, and print the time of each step.

    Args:
        images: whether to build the images of the parts as well.

    Raises:
        NotHereError: the machine gives no root, namespaces or control groups.
        BrokenError: a build failed, or packages cannot be had.
    """
    if problem := requirements.machine_obstacle():
        raise NotHereError(problem)
    with step("Debian's packages"):
        _run("tools/node-packages", *(requirements.BUILDERS if images else ()), check=False)
        if problem := requirements.obstacle(images=images):
            raise BrokenError(problem)
        try:
            debian_file("sudo", "usr/bin/sudo")  # a node reaches no mirror
        except MissingPackageError as error:
            raise BrokenError(str(error)) from error
    with step("programs of the control plane"):
        try:
            build.ensure(tuple(assets.PACKAGES))
        except build.BuildError as error:
            raise BrokenError(str(error)) from error
    if images:
        with step("base image"):
            if _run("tools/image-base", check=False) == OUT_OF_REACH:
                raise BrokenError(
                    "Debian's packages are out of reach; remedy: MIRROR=<a mirror within reach>"
                )
        with step("wheels and images"):
            _run("make", "--no-print-directory", "node-images")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Tell the time of a step once it has ended."""
    began_s = time.monotonic()
    yield
    say(f"{name}: {time.monotonic() - began_s:.1f} s")


def _run(*command: str, check: bool = True) -> int:
    status = subprocess.run(command, check=False, cwd=ROOT).returncode
    if check and status:
        raise BrokenError(f"`{' '.join(command)}` failed with {status}")
    return status
