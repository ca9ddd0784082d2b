"""The checks of this machine: driver, container toolkit, library, broker, and SELinux.

What always holds: a machine without an NVIDIA card is no broken node. Its driver, toolkit and broker are skipped, so
that the command is of use on an operator's own computer.
"""

import asyncio
import os
import platform
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll import gpu_health
from plimsoll.broker.client import BrokerAwayError, BrokerClient
from plimsoll.broker.root import has_users
from plimsoll.broker.wire import CONTROL_NAME
from plimsoll.gpu_health import DriverView
from plimsoll.ids import GpuUuid
from plimsoll.native.preload import preloadable
from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.causes import cause_of
from plimsoll.part.errors import InputError
from plimsoll_cli.doctor.finding import Finding, failed, failed_by, listed, ok, skipped, warning

BROKER_S: Final = 10.0
"""Seconds for the broker's answer, as a broker under load may take some."""

NVIDIA: Final = "0x10de"
DISPLAY: Final = "0x03"
"""PCI's number of the vendor, and the beginning of the class of graphics and compute cards."""

TOOLKIT: Final = "nvidia-container-runtime"


@dataclass(frozen=True, slots=True)
class Machine:
    """Where to look.

    Attributes:
        broker_root: the broker's directory.
        library: the preload library.
        sys: the root of sysfs.
    """

    broker_root: Path
    library: Path
    sys: Path = Path("/sys")


async def machine(where: Machine) -> AsyncIterator[Finding]:
    """The findings, one after another."""
    cards = await asyncio.to_thread(_cards, where.sys)
    driver, ill = await _driver(cards)
    yield driver
    if cards:
        yield await asyncio.to_thread(_toolkit)
    yield await _library(where.library)
    findings, known = await _broker(where.broker_root)
    for finding in (*findings, *_health({**ill, **known})):
        yield finding
    yield await asyncio.to_thread(_selinux, where.sys)


def _cards(sys: Path) -> int:
    """NVIDIA cards on the PCI bus, whether a driver knows them or not."""
    found = 0
    for device in (sys / "bus" / "pci" / "devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        found += vendor == NVIDIA and kind.startswith(DISPLAY)
    return found


async def _driver(cards: int) -> tuple[Finding, dict[GpuUuid, str]]:
    """The finding on the driver, and the GPUs that can be read and are not well now by its figures."""
    thread = DriverThread()
    try:
        gpus, failing, figures, version = await thread.ask(
            lambda nvml: (nvml.read(None), nvml.failing, nvml.health(), nvml.driver())
        )
    except NvmlAwayError as error:
        if error.remedy:
            return failed("driver", str(error), error.remedy), {}
        if cards:
            remedy = "look for NVRM in `dmesg`, run `nvidia-smi`, and install the driver anew or restart the machine"
            return failed(
                "driver", f"{_count(cards, 'NVIDIA card')} here, and no driver: {error}", remedy
            ), {}
        remedy = "run `plimsoll doctor` on a node with GPUs"
        return skipped("driver", "this machine has no NVIDIA card", remedy), {}
    finally:
        await thread.close()
    text = f"driver {version or 'of an unknown version'}, {_count(len(gpus), 'GPU')}"
    seen = DriverView(0.0, "", tuple(gpu.reading for gpu in gpus), figures=figures)
    records, _ = gpu_health.update({}, seen, gpu_health.HOLD_S)
    ill = {one.gpu: f"{one.health.value}: {one.reason}" for one in gpu_health.unhealthy(records)}
    if failing:
        remedy = (
            "run `nvidia-smi -q` and look for Xid in `dmesg`; drain the node, and reset the GPU or restart"
        )
        return failed("driver", f"{text}, and {len(failing)} that cannot be read", remedy), ill
    if len(gpus) < cards:
        remedy = (
            "look for Xid and NVRM in `dmesg`; a card that fell off the bus needs a restart of the machine"
        )
        return warning("driver", f"{text}, and {cards} cards on the PCI bus", remedy), ill
    return ok("driver", text), ill


def _toolkit() -> Finding:
    path = shutil.which(TOOLKIT)
    if path:
        return ok("toolkit", path)
    remedy = "install NVIDIA's container toolkit and configure containerd by `nvidia-ctk runtime configure`"
    return warning("toolkit", f"{TOOLKIT} is not on the PATH, so containers may see no driver", remedy)


async def _library(library: Path) -> Finding:
    try:
        path = await preloadable(library.name, library, os.environ)
    except InputError as error:
        return failed_by("library", error)
    kind, version = await asyncio.to_thread(platform.libc_ver)
    return ok("library", f"{path} can be preloaded ({kind or 'C library'} {version})".replace(" )", ")"))


async def _broker(root: Path) -> tuple[list[Finding], dict[GpuUuid, str]]:
    """The findings on the broker, and the unhealthy GPUs that it knows of."""
    remedy = (
        "start one by `plimsoll run`, or name another directory with --broker-root; on a node, run as root"
    )
    try:
        if not await asyncio.to_thread((root / CONTROL_NAME).exists):
            if await asyncio.to_thread(has_users, root):
                anew = "ask again in a few seconds: a broker that starts or lives makes the socket"
                return [
                    failed("broker", f"{root / CONTROL_NAME} is missing, and commands run there", anew)
                ], {}
            return [skipped("broker", f"no broker is at {root}", remedy)], {}
        async with BrokerClient(root, timeout_s=BROKER_S) as broker:
            described = await broker.describe()
    except OSError as error:
        return [failed_by("broker", f"the broker at {root}: {cause_of(error, '--broker-root')}")], {}
    except BrokerAwayError as error:
        remedy = (
            "see its log (`kubectl logs` of the node's pod plimsoll-broker, or the log in its directory) and "
            "restart it: programs run on meanwhile, lines and limits hold, and requested shares do not"
        )
        return [failed("broker", f"the broker at {root} does not answer: {error}", remedy)], {}
    findings = [ok("broker", f"{root}, {_count(len(described.containers), 'container')}")]
    if loose := [str(one.gpu) for one in described.enforcement if one.enforcement == "none"]:
        remedy = "set PLIMSOLL_BROKER_ENFORCEMENT to preload or both"
        findings.append(warning("lines", f"nothing holds lines on {listed(loose)}", remedy))
    return findings, described.unhealthy


def _health(unhealthy: Mapping[GpuUuid, str]) -> list[Finding]:
    if not unhealthy:
        return []
    remedy = "drain the node, and reset the GPU or restart the machine"
    return [
        failed("gpus", f"not healthy: {listed(f'{gpu} ({text})' for gpu, text in unhealthy.items())}", remedy)
    ]


def _selinux(sys: Path) -> Finding:
    try:
        enforcing = (sys / "fs" / "selinux" / "enforce").read_text().strip() == "1"
    except OSError:
        return ok("selinux", "SELinux is off")
    if not enforcing:
        return ok("selinux", "SELinux is permissive")
    remedy = (
        "look for plimsoll in `ausearch -m avc -ts recent`; where the broker's socket is denied, containers run "
        "without shares: label the broker's directory container_file_t (docs/volumes.md)"
    )
    return warning(
        "selinux", "SELinux is enforcing, and may keep containers from the broker's socket", remedy
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
