"""Programs of a command that lose their variables keep its line, where `plimsoll run` may mount."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.native import HOOK_LIBRARY
from solo.private_mounts import NO_MOUNTS
from tests.node.places import MULTIARCH
from tests.placer.local.world import BUILD, BUSY
from tests.solo.machine import Machine

PAST = f"{BUSY} --memory 2Gi"
"""A program that takes more than its line of 1 GiB."""


@pytest.fixture(autouse=True, scope="module")
def _may_mount() -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("mounts need root: run these tests as root")


def emulator_of(machine: Machine) -> str:
    """The emulated driver's variables, which stand for what a real driver needs none of."""
    return f"PLIMSOLL_EMULATOR={machine.root.parent / 'node.conf'} LD_LIBRARY_PATH={BUILD / 'emulator'}"


async def test_a_program_without_its_variables_is_held(machine: Machine) -> None:
    """Cleared environments, a login, a subprocess's own environment; and nothing is complained."""
    keep = emulator_of(machine)
    own = f"import subprocess; subprocess.run(['env', '-i', *'{keep} {PAST}'.split()], env={{}})"
    script = (
        f"env -i {keep} {PAST}",
        f"(unset LD_PRELOAD PLIMSOLL_LIMITS_DIR PLIMSOLL_COUNTS_DIR; {PAST})",
        f'su - root -c "{keep} {PAST}"',
        f'{sys.executable} -c "{own}"',
        f"chroot / env -i {keep} {PAST}",
    )
    code, output, errors = await machine.run(
        "--gpu-memory", "1Gi", "--", "sh", "-c", "; ".join((*script, "true"))
    )
    ends = [line for line in map(json.loads, output.splitlines()) if line["phase"] != "started"]
    assert [line.get("error") for line in ends] == ["CUDA_ERROR_OUT_OF_MEMORY"] * len(script), output
    assert (code, errors) == (0, "")


async def in_own_etc(script: str, machine: Machine, preloads: str | None) -> tuple[str, str]:
    """Output and errors of `plimsoll run -- sh -c SCRIPT`, on a machine with these preloads."""
    etc = machine.root.parent / "etc"
    await asyncio.to_thread(shutil.copytree, "/etc", etc, symlinks=True, dirs_exist_ok=True)
    # Other commands of this machine, such as those of other tests, may have made the file.
    (etc / "ld.so.preload").unlink(missing_ok=True)
    if preloads is not None:
        (etc / "ld.so.preload").write_text(preloads)
    command = (
        f"{sys.executable} -m plimsoll run --broker-root {machine.root} --gpu-memory 1Gi -- sh -c '{script}'"
    )
    # Commands find each other in /run, and the last one removes the file.
    mounts = f"mount --bind {etc} /etc && mount -t tmpfs tmpfs /run"
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", f"{mounts} && {command}"),
        env={**os.environ, **dict(pair.split("=", 1) for pair in emulator_of(machine).split())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return output.decode(), errors.decode()


async def test_the_machines_own_preloads_go_on(machine: Machine) -> None:
    """The command's programs have the machine's preloads and the library, once, and the machine's file stays."""
    own = Path("/lib") / MULTIARCH / "libz.so.1"
    output, errors = await in_own_etc(
        "cat /proc/self/maps; env -i cat /proc/self/maps", machine, f"# ours\n{own}\n"
    )
    assert errors == ""
    for name in ("libz.so", HOOK_LIBRARY.name):
        starts = [
            line for line in output.splitlines() if f"/{name}" in line and line.split()[2] == "00000000"
        ]
        assert len(starts) == 2, name
    assert preloads_of(machine) == f"# ours\n{own}\n"


def preloads_of(machine: Machine) -> str | None:
    """The machine's file of preloads after the command; None where it has none."""
    path = machine.root.parent / "etc" / "ld.so.preload"
    return path.read_text() if path.exists() else None


async def test_a_machine_without_preloads_has_none_afterwards(machine: Machine) -> None:
    """The file that was made as a place for the mount is removed."""
    _, errors = await in_own_etc("test -s /etc/ld.so.preload", machine, None)
    assert errors == ""
    assert preloads_of(machine) is None


async def test_root_that_may_not_mount_is_told_what_holds_its_command(machine: Machine) -> None:
    """In a container without the capability the variables hold it. A command within the command says nothing more."""
    setpriv = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    run = (
        sys.executable,
        "-m",
        "plimsoll",
        "run",
        "--broker-root",
        str(machine.root),
        "--gpu-memory",
        "1Gi",
        "--",
    )
    process = await asyncio.create_subprocess_exec(
        *(*setpriv, *run, "sh", "-c", f"{PAST}; test ! -e /run/plimsoll/limits && {' '.join(run)} true"),
        env={**os.environ, **dict(pair.split("=", 1) for pair in emulator_of(machine).split())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert b"CUDA_ERROR_OUT_OF_MEMORY" in output
    assert (process.returncode, errors.decode()) == (0, f"plimsoll run: {NO_MOUNTS}\n")
