"""Sets containers' lines in the driver too, by their control groups, so that no program escapes them.

A pod's own control group gets the sum of its containers' lines. The kubelet makes that group and waits for the pod's
volume before it starts a container, so the line holds before any program runs. Each container's group gets the
container's line as soon as the pod's status names the container's id.

What always holds: a line is raised in the driver before it is raised for the library, and lowered after it. A lower
line that the driver does not take, because the container holds more, follows the use down with each audit. Control
groups take their limits along when they end, so nothing is to be removed with a pod.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hook.broker.core.enforcement import (
    BY_DRIVER,
    EnforcementName,
    container_limits,
    has_cgroup,
    pod_limits,
    without_limits,
)
from hook.broker.core.node import Node
from plimsoll.broker.wire import GpuEnforcement, Register
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.kube.cgroup import find_container_cgroup, find_pod_cgroup
from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.part.processes import PROC
from plimsoll.quantity import format_bytes

if TYPE_CHECKING:
    from plimsoll.nvml.library import Nvml

FIELD: Final = "PLIMSOLL_BROKER_ENFORCEMENT"

CAP_SYS_ADMIN: Final = 21
"""Its number in the kernel's capability.h."""

GROUP_WAIT_S: Final = 2.0
"""The longest wait for a pod's control group, which is there within milliseconds, or never."""

LOOK_AGAIN_S: Final = 0.05
"""Seconds between two searches for a pod's control group, which the kubelet makes at about the time of its
request."""

_log: Final = get_logger()


@dataclass(frozen=True, slots=True)
class DriverLine:
    """A control group's limit on a GPU, as the driver showed it last.

    Attributes:
        cgroup: the group of a pod or a container.
        wanted_bytes: the limit that is due; None for none.
        hard_bytes: the limit that the driver holds; None for none.
        used_bytes: what the group's processes hold.
        problem: the reason why the limit could not be read or set; empty where it could.
    """

    cgroup: Path
    gpu: GpuUuid
    wanted_bytes: int | None
    hard_bytes: int | None = None
    used_bytes: int = 0
    problem: str = ""


class DriverLines:
    """The lines in the driver. For the loop's thread only."""

    def __init__(
        self, node: Node, driver: DriverThread, cgroup_root: Path, enforcement: EnforcementName
    ) -> None:
        """Begin without asking the driver.

        Args:
            node: the broker's knowledge; it is only read.
            driver: the broker's thread for NVML.
            cgroup_root: the mount point of the node's control groups (version 2).
            enforcement: the setting.
        """
        self._node = node
        self._driver = driver
        self._root = cgroup_root
        self._enforcement: EnforcementName = enforcement
        self._obstacles: dict[GpuUuid, str] = {}
        self._problem = ""
        self._changing = asyncio.Lock()
        self._asked = asyncio.Event()
        self._ids: dict[PodUid, Mapping[ContainerName, str]] = {}
        self._groups: dict[PodUid, Path] = {}
        self._lines: dict[PodUid, tuple[DriverLine, ...]] = {}

    async def require(self) -> None:
        """Set all lines, before pages are laid out that hold none: for `driver`.

        Raises:
            InputError: the driver cannot hold a line of some GPU here.
        """
        await self._ask_what_it_can()
        causes = [self._problem, *(f"{gpu}: {why}" for gpu, why in self._obstacles.items() if why)]
        if problem := "; ".join(filter(None, causes)):
            remedy = "or use `both`, which does what the node can"
            raise InputError(FIELD, self._enforcement, f"cannot work here ({problem})", remedy)
        await self.settle_all()

    async def run(self, again_s: float) -> None:
        """Set all lines at once, and what is still due each `again_s` seconds, until cancelled."""
        await self._ask_what_it_can()
        self._report()
        while True:
            await self.settle_all()
            await asyncio.sleep(again_s)  # no event reports a group that came late, or a use that fell
            if self._problem:
                before = self._problem
                await self._ask_what_it_can()
                if self._problem != before:
                    self._report()

    @contextlib.asynccontextmanager
    async def changing(self, pod: Register) -> AsyncIterator[None]:
        """Raise a pod's lines before the context, and bring all of them to what is registered after it."""
        async with self._changing:
            await self._settle(pod, only_raise=True)
            try:
                yield
            finally:
                await self._settle_registered(pod.pod)

    async def settle_all(self) -> None:
        """Bring the lines of all registered pods to what is registered."""
        for record in self._node.pods:
            async with self._changing:
                await self._settle_registered(record.pod.pod)

    async def containers_run(self, pod: PodUid, ids: Mapping[ContainerName, str]) -> None:
        """Set the lines of containers whose ids the pod's status shows. Ids that are known cost nothing."""
        if ids != self._ids.get(pod, {}):
            async with self._changing:
                self._ids[pod] = ids
                await self._settle_registered(pod)

    async def before_start(self, pod: PodUid) -> str:
        """Set a pod's lines before its first container starts.

        Returns the reason why the pod must not start: `driver` is set, and its lines could not be. Otherwise nothing.
        """
        problem = await self._before_start(pod)
        return problem if self._enforcement == "driver" else ""

    async def _before_start(self, pod: PodUid) -> str:
        await self._asked.wait()
        deadline_s = time.monotonic() + GROUP_WAIT_S
        while True:
            async with self._changing:
                await self._settle_registered(pod)
            lines = self._lines.get(pod, ())
            due = self._enforcement in BY_DRIVER and any(why == "" for why in self._obstacles.values())
            if lines or not due or time.monotonic() > deadline_s:
                break
            await asyncio.sleep(LOOK_AGAIN_S)  # the kubelet announces no control group
        if due and not lines:
            problem = (
                f"no control group of the pod is below {self._root}: the kubelet needs cgroupsPerQOS (its default), "
                "and the broker the node's own /sys/fs/cgroup"
            )
            _log.warning("driver_line_not_set", pod=pod, problem=problem)
            return problem
        return "; ".join(line.problem for line in lines if line.problem)

    def forget(self, pod: PodUid) -> None:
        """Forget a pod that was removed."""
        for known in (self._ids, self._groups, self._lines):
            known.pop(pod, None)

    def pod_line(self, pod: PodUid, gpu: GpuUuid) -> int | None:
        """The limit that the driver holds for a whole pod, in bytes; None for none."""
        group = self._groups.get(pod)
        held = [line for line in self._lines.get(pod, ()) if line.gpu == gpu and line.cgroup == group]
        return held[0].hard_bytes if held else None

    def state(self) -> tuple[GpuEnforcement, ...]:
        """The enforcement on each GPU that the driver or a registered pod names; empty until known."""
        if not self._asked.is_set():
            return ()
        containers = self._node.pods.containers.values()
        registered = {line.gpu for container in containers for line in container.lines}
        return tuple(self._of(gpu) for gpu in sorted(registered | set(self._obstacles)))

    def _of(self, gpu: GpuUuid) -> GpuEnforcement:
        if self._enforcement != "both":
            return GpuEnforcement(gpu=gpu, enforcement=self._enforcement)
        why = self._problem or self._obstacles.get(gpu, "the driver shows no such GPU") or self._refusal(gpu)
        return GpuEnforcement(gpu=gpu, enforcement="preload" if why else "both", reason=why)

    def _refusal(self, gpu: GpuUuid) -> str:
        """The reason of the first limit on a GPU that the driver refused; empty where it refused none."""
        found = (line.problem for lines in self._lines.values() for line in lines if line.gpu == gpu)
        return next(filter(None, found), "")

    async def _ask_what_it_can(self) -> None:
        self._problem = await asyncio.to_thread(_machine_problem, self._root)
        if self._problem:
            self._asked.set()
            return
        try:
            self._obstacles = await self._driver.ask(partial(_obstacles, self._root))
        except NvmlAwayError as error:
            self._problem = str(error)
        else:
            self._problem = ""
        finally:
            self._asked.set()

    def _report(self) -> None:
        if self._problem:
            _log.info("enforcement", setting=self._enforcement, driver_cannot=self._problem)
        for one in self.state():
            _log.info(
                "enforcement",
                setting=self._enforcement,
                gpu=one.gpu,
                enforcement=one.enforcement,
                driver_cannot=one.reason,
            )

    async def _settle_registered(self, pod: PodUid) -> None:
        record = self._node.pods.get(pod)
        if record is not None:
            await self._settle(record.pod)

    async def _settle(self, pod: Register, *, only_raise: bool = False) -> None:
        able = {gpu for gpu, why in self._obstacles.items() if not why}
        if not able or not has_cgroup(pod):
            return
        known, ids = self._groups.get(pod.pod), self._ids.get(pod.pod, {})
        groups = await asyncio.to_thread(_find_groups, self._root, pod.pod, known, ids)
        if None in groups:
            self._groups[pod.pod] = groups[None]
        wanted = [
            DriverLine(group, gpu, hard_bytes)
            for group, limits in self._limits(pod, groups)
            for gpu, hard_bytes in limits.items()
            if gpu in able
        ]
        if not wanted:
            return
        try:
            lines = await self._driver.ask(partial(_set_all, tuple(wanted), only_raise=only_raise))
        except NvmlAwayError as error:
            lines = tuple(_failed(line, error) for line in wanted)
        self._take(pod, lines)

    def _limits(
        self, pod: Register, groups: Mapping[ContainerName | None, Path]
    ) -> Iterable[tuple[Path, dict[GpuUuid, int | None]]]:
        context_bytes = self._node.audit.context_bytes
        limits = {None: pod_limits(pod, context_bytes)} | {
            container.name: container_limits(container, context_bytes) for container in pod.containers
        }
        for name, group in groups.items():
            if name in limits:
                yield group, limits[name] if self._enforcement in BY_DRIVER else without_limits(limits[name])

    def _take(self, pod: Register, lines: tuple[DriverLine, ...]) -> None:
        """Keep what the driver shows, and log what is new in it."""
        before = {(line.cgroup, line.gpu): line for line in self._lines.get(pod.pod, ())}
        self._lines[pod.pod] = lines
        where = f"{pod.namespace}/{pod.name}"
        for line in lines:
            known = before.get((line.cgroup, line.gpu))
            about = {"pod": where, "cgroup": str(line.cgroup), "gpu": line.gpu}
            if line.problem and (known is None or known.problem != line.problem):
                effect = "the library alone holds it" if self._enforcement == "both" else "nothing holds it"
                _log.error("driver_line_not_set", **about, problem=line.problem, effect=effect)
            elif not line.problem and (known is None or known.hard_bytes != line.hard_bytes):
                _log.info("driver_line_set", **about, bytes=line.hard_bytes, **_lag(line))


def _find_groups(
    root: Path, pod: PodUid, known: Path | None, ids: Mapping[ContainerName, str]
) -> dict[ContainerName | None, Path]:
    """The control groups of a pod (None) and of its containers that exist now. Blocks, briefly."""
    group = known if known is not None and known.is_dir() else find_pod_cgroup(root, pod)
    if group is None:
        return {}
    found = {name: find_container_cgroup(group, container_id) for name, container_id in ids.items()}
    return {None: group} | {name: path for name, path in found.items() if path is not None}


def _lag(line: DriverLine) -> dict[str, str]:
    if line.wanted_bytes is None or line.used_bytes <= line.wanted_bytes:
        return {}
    used, wanted = format_bytes(line.used_bytes), format_bytes(line.wanted_bytes)
    return {"problem": f"it holds {used} now, above {wanted}: the line follows its use down"}


def _machine_problem(root: Path) -> str:
    if not (root / "cgroup.controllers").exists():
        return (
            f"{root} has no control groups of version 2, by which the driver limits memory: boot the node with "
            "systemd.unified_cgroup_hierarchy=1, or use `preload`"
        )
    if not _may_administer():
        return "the driver lets only CAP_SYS_ADMIN set limits: run the broker privileged, or use `preload`"
    return ""


def _may_administer() -> bool:
    status = (PROC / "self/status").read_text()
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return effective is not None and bool(int(effective[1], 16) >> CAP_SYS_ADMIN & 1)


def _obstacles(root: Path, nvml: "Nvml") -> dict[GpuUuid, str]:
    return nvml.limit_obstacles(root)


def _set_all(wanted: tuple[DriverLine, ...], nvml: "Nvml", *, only_raise: bool) -> tuple[DriverLine, ...]:
    """Set all lines; returns the driver's state after that, without groups that ended meanwhile."""
    lines = (_set(nvml, line, only_raise=only_raise) for line in wanted)
    return tuple(line for line in lines if not line.problem or line.cgroup.is_dir())


def _set(nvml: "Nvml", line: DriverLine, *, only_raise: bool) -> DriverLine:
    """Bring a limit to what is wanted. A limit below the use becomes the use, because the driver takes none below."""
    try:
        now = nvml.limit_of(line.gpu, line.cgroup)
        goal_bytes = None if line.wanted_bytes is None else max(line.wanted_bytes, now.used_bytes)
        is_raise = now.hard_bytes is not None and (goal_bytes is None or goal_bytes > now.hard_bytes)
        if goal_bytes != now.hard_bytes and (is_raise or not only_raise):
            nvml.limit(line.gpu, line.cgroup, goal_bytes)
            now = nvml.limit_of(line.gpu, line.cgroup)
            if now.hard_bytes is None and goal_bytes is not None:
                raise NvmlAwayError("the driver took the limit, and shows none: see its log (dmesg)")
    except NvmlAwayError as error:
        return _failed(line, error)
    return DriverLine(line.cgroup, line.gpu, line.wanted_bytes, now.hard_bytes, now.used_bytes)


def _failed(line: DriverLine, error: NvmlAwayError) -> DriverLine:
    return DriverLine(line.cgroup, line.gpu, line.wanted_bytes, problem=str(error))
