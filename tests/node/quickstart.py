"""Commands of a document, run as a reader would: in a shell, from the repository's folder, one after another."""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster import assets
from tests.node.places import ROOT

COMMAND_S: Final = 300.0
"""Generous: `kubectl rollout status` waits for images to be unpacked."""


class FailedError(AssertionError):
    """A command of the document failed; the message has its output."""


def commands(document: str, heading: str) -> list[str]:
    """The commands of a section's console examples, in order. Subsections are not read.

    Args:
        document: Markdown.
        heading: the section's, with its marks: `## In ten minutes`.
    """
    level = heading.partition(" ")[0]
    _, _, rest = f"\n{document}".partition(f"\n{heading}\n")
    assert rest, f"no heading {heading!r}"
    section = re.split(rf"^#{{1,{len(level) + 1}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [found for block in blocks for found in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)]


INSTALL: Final = (ROOT / "docs" / "install.md").read_text()
README: Final = (ROOT / "README.md").read_text()

# Unpacked here, so that every run of the tests notices a section with other commands, on any machine.
*SET_UP, SHOW_MEMORY, APPLY, SHOW_POD, DESCRIBE = commands(INSTALL, "## In ten minutes")
_, SHOW_GPUS, EXPLAIN, _, DOCTOR = commands(README, "## A pod that waits, or is slow")
RESIZE_LINE, RESIZE_SHARE = commands(README, "## A line or a share that proved too small")
LIST_PODS, UNINSTALL, REMOVE_RESOURCES = commands(INSTALL, "## Uninstalling")


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell whose PATH has the programs that the documents name.

    Attributes:
        variables: the variables of the shell.
    """

    variables: Mapping[str, str]

    async def run(self, command: str, **more: str) -> str:
        """Run one command, with more variables; returns its output. Raises `FailedError`."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", command),
            cwd=ROOT,
            env={**self.variables, **more},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(COMMAND_S):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise FailedError(f"$ {command}\n{output.decode()}\nended with {process.returncode}")
        return output.decode()


@contextlib.asynccontextmanager
async def placer_forwarded(reader: Shell) -> AsyncIterator[str]:
    """`kubectl port-forward` to a placer until the context ends; yields the URL that `plimsoll explain` takes."""
    command = "exec kubectl -n plimsoll-system port-forward deployment/plimsoll-placer :8080"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command), env=reader.variables, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(COMMAND_S):
            line = (await process.stdout.readline()).decode()
        found = re.match(r"Forwarding from (127\.0\.0\.1:\d+) ->", line)
        assert found, line
        yield f"http://{found[1]}"
    finally:
        process.kill()
        await process.communicate()


def shell(directory: Path, kubeconfig: Path, **variables: str) -> Shell:
    """A shell with `kubectl`, `helm` and `plimsoll` on its PATH.

    Args:
        directory: a new folder for the programs.
        kubeconfig: the administrator's.
        variables: further ones.
    """
    directory.mkdir(parents=True)
    programs = {
        "kubectl": f'"{assets.binary("kubectl")}"',
        "helm": f'"{sys.executable}" -m tests.node.helm',
        "plimsoll": f'"{sys.executable}" -m plimsoll',
    }
    for name, command in programs.items():
        (directory / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (directory / name).chmod(0o755)
    path = f"{directory}:{os.environ['PATH']}"
    return Shell(
        {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(directory), **variables}
    )
