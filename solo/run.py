"""`plimsoll run`: choose a GPU of this machine, register the promise with the broker, and run the command there.

What always holds: choosing a GPU and registering the promise happen under one lock on the broker's directory, so
commands that are started in the same second see each other's promises. A `plimsoll run` that was killed leaves its
registration behind. The next one removes it, once no process of that command lives.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Self

from msgspec.structs import replace

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import policy_named
from placer.core.policy_context import Request
from placer.core.reasons import UNHEALTHY
from placer.core.refusal import Refusal
from placer.core.registration import registration
from plimsoll.broker.announcements import Announcement, Unenforced
from plimsoll.broker.client import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.broker.environment import POD_VARIABLE, Enforcement, pod_variables, processes_of
from plimsoll.broker.wire import RUN_NAMESPACE, Register, Registered
from plimsoll.demand import parse_pod
from plimsoll.ids import PodUid, ProcessKey
from plimsoll.kube.models import Pod
from plimsoll.native.preload import preloadable
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.limits import limit_of
from plimsoll.part.processes import read_stat
from plimsoll.quantity import format_bytes
from solo.machine import Machine, read_machine
from solo.options import MAIN, RunOptions, in_options, pod_of
from solo.private_broker import (
    START_S,
    ensure_broker,
    keep_broker,
    last_words,
    locked,
    make_root,
    needing,
    using,
)
from solo.private_mounts import NO_MOUNTS, PrivateMounts, private_mounts

UNHELD_MAX: Final = 8
"""Processes without the library that standard error names. A script may start any number."""

LEAVE_S: Final = 5.0
"""Seconds that a broker may take to forget an ended command. A broker that is restarted answers within them."""


class NoRoomError(PlimsollError):
    """No GPU of this machine has room now; the message says why."""


class NeverRoomError(PlimsollError):
    """No GPU of this machine would do even if nothing else used it; the message says why."""


async def run_command(options: RunOptions) -> int:
    """Run a command on a GPU with room and wait for its end; cancelling ends it.

    Returns:
        The command's exit code; 128 + n after signal n.

    Raises:
        InputError: the options cannot work.
        NoRoomError: no GPU has room now.
        NeverRoomError: no GPU would do if nothing else ran.
        NoGpuError: there is no GPU.
        BrokerAwayError: no broker could be reached or started.
        RefusedError: the broker refuses the registration.
    """
    pod = pod_of(options)
    library = await preloadable("--hook-library", options.hook_library, options.environment)
    options = dataclasses.replace(options, hook_library=library)
    uid, root = PodUid(pod.metadata.uid), options.broker_root
    await make_root(root)
    broker, children = BrokerClient(root, timeout_s=START_S), set[int]()
    try:
        with _Signals() as signals, private_mounts() as mounts:
            async with using(root) as user:
                async with locked(root):
                    private = await ensure_broker(root, options.environment, children)
                    try:
                        async with needing(root, private):
                            process = await _placed_and_started(broker, pod, options, _Keeping(user, mounts))
                    except BrokerAwayError as error:
                        raise BrokerAwayError(
                            f"{error}{await asyncio.to_thread(last_words, root)}"
                        ) from error
                children.add(process.pid)
                keep = keep_broker(root, options.environment, children, _Unheld(uid).take)
                tasks = [asyncio.create_task(keep, name="keep the broker")]
                tasks.append(asyncio.create_task(bury_orphans(children), name="bury orphans"))
                try:
                    return await signals.follow(process)
                finally:
                    for task in tasks:
                        task.cancel()
                    await _leave(broker, root, uid)
    finally:
        await broker.close()


async def _leave(broker: BrokerClient, root: Path, pod: PodUid) -> None:
    """Unregister the command. The caller gets the exit code even if the broker is gone, or its disk is full."""
    try:
        async with asyncio.timeout(LEAVE_S):
            await broker.unregister(pod)
    except (TimeoutError, BrokerAwayError, RefusedError):
        effect = "the next command that is run there removes the registration"
        sys.stderr.write(f"plimsoll run: no broker at {root} answered at the command's end; {effect}\n")


@dataclasses.dataclass(frozen=True, slots=True)
class _Keeping:
    """The command inherits these, for the case that this process is killed before it.

    Attributes:
        user: the descriptor that makes it a user of the broker.
        mounts: its own mounts; None where it can have none.
    """

    user: int
    mounts: PrivateMounts | None


async def _placed_and_started(
    broker: BrokerClient, pod: Pod, options: RunOptions, keeping: _Keeping
) -> asyncio.subprocess.Process:
    await _unregister_ended(broker)
    placed = await _choose(broker, pod, options.environment)
    try:
        asked = replace(registration(pod, placed), runner=await asyncio.to_thread(_this_process))
        registered = await _registered(broker, asked, options.broker_root)
        enforcement = Enforcement(options.hook_library, registered.containers[0], placed.gpus[MAIN])
        return await _start(options, placed.booking.pod, enforcement, keeping)
    except BaseException:
        # A broker that refuses a registration for its full disk has taken it in, and would try it again.
        with contextlib.suppress(TimeoutError, PlimsollError):
            async with asyncio.timeout(LEAVE_S):
                await broker.unregister(placed.booking.pod)
        raise


async def _unregister_ended(broker: BrokerClient) -> None:
    """Have the broker forget commands that ended after their `plimsoll run` was killed."""
    description = await broker.describe()
    for pod in {use.pod for use in description.containers if use.namespace == RUN_NAMESPACE}:
        if not await asyncio.to_thread(processes_of, pod):
            await broker.unregister(pod)


async def _choose(broker: BrokerClient, pod: Pod, environment: Mapping[str, str]) -> Plan:
    machine = await read_machine(broker, await broker.describe(), environment)
    demand = parse_pod(pod)
    policy = policy_named(demand.policy or "headroom", "--policy")
    decided = plan_on(Request(PodUid(pod.metadata.uid), demand), machine.view, machine.ledger, policy)
    if isinstance(decided, Refusal):
        alone = plan_on(Request(PodUid(pod.metadata.uid), demand), machine.unused(), Ledger(), policy)
        if isinstance(alone, Plan) or _names_faults(alone):
            raise _no_room(decided)
        raise _never_room(alone, machine)
    return decided


def _no_room(refusal: Refusal) -> NoRoomError:
    free = refusal.best_free_bytes
    most = "" if free is None else f" (one has {format_bytes(free)} free)"
    remedy = "ask for less, or wait for room: `plimsoll status` shows the containers that have it"
    if _names_faults(refusal):
        remedy = "reset the GPU or restart the machine: `plimsoll doctor` shows each fault; or " + remedy
    return NoRoomError(f"this machine has no room for the command now: {_reasons(refusal)}{most}; {remedy}")


def _names_faults(refusal: Refusal) -> bool:
    """Whether a GPU that might do is not well. A GPU that cannot be read may come back with any memory."""
    return any(reason.startswith(UNHEALTHY) for given in refusal.reasons.values() for reason in given)


def _never_room(refusal: Refusal, machine: Machine) -> NeverRoomError:
    gpus = [f"{gpu.uuid} ({gpu.model}, {format_bytes(gpu.usable_bytes)})" for gpu in machine.unused().gpus]
    remedy = f"ask for what these have together or alone: {', '.join(gpus)}"
    return NeverRoomError(f"this machine can never run the command: {_reasons(refusal)}; {remedy}")


def _reasons(refusal: Refusal) -> str:
    """The reasons in the terms of options, and of one machine."""
    reasons = [reason for given in refusal.reasons.values() for reason in given]
    return in_options("; ".join(reasons)).replace("node(s) ", "it ")


async def _registered(broker: BrokerClient, request: Register, root: Path) -> Registered:
    try:
        return await broker.register(request)
    except RefusedError as error:
        raise RefusedError(f"the broker at {root} cannot hold the command to its line: {error}") from error


async def _start(
    options: RunOptions, pod: PodUid, enforcement: Enforcement, keeping: _Keeping
) -> asyncio.subprocess.Process:
    """Start the command in its own mounts, or without them where this process may make none."""
    environment = {**options.environment, **pod_variables(pod, options.environment, enforcement)}
    adopt_orphans()
    descriptors = [keeping.user]
    start = partial(asyncio.create_subprocess_exec, *options.command, env=environment)
    try:
        if keeping.mounts is not None:
            descriptors.append(keeping.mounts.lock)
            pages = enforcement.directories
            enter = partial(keeping.mounts.enter, enforcement.library, pages.limits_dir, pages.counts_dir)
            # Safe beside other threads: the child makes a few system calls, and takes no lock of theirs.
            with contextlib.suppress(subprocess.SubprocessError):
                return await start(pass_fds=descriptors, preexec_fn=enter)
        if os.geteuid() == 0 and POD_VARIABLE not in options.environment:  # an outer command has been told
            sys.stderr.write(f"plimsoll run: {NO_MOUNTS}\n")
        return await start(pass_fds=descriptors)
    except (OSError, ValueError) as error:
        if limit := limit_of(error):
            raise PlimsollError(limit) from error
        remedy = "give a program that exists on this machine"
        raise InputError("command", options.command[0], f"cannot be started ({error})", remedy) from error


def _this_process() -> ProcessKey | None:
    """This process; None where `/proc` does not show it."""
    pid = os.getpid()
    stat = read_stat(pid)
    return None if stat is None else ProcessKey(pid, stat.start_ticks)


class _Unheld:
    """Tells on standard error which processes of the command use a GPU without the library."""

    def __init__(self, pod: PodUid) -> None:
        self._pod = pod
        self._told: set[tuple[int, int]] = set()

    def take(self, found: Announcement) -> None:
        """Write a line for a process of the command, once and for at most `UNHELD_MAX` of them."""
        if not isinstance(found, Unenforced) or found.pod != self._pod or len(self._told) > UNHELD_MAX:
            return
        if (found.pid, found.start_ticks) in self._told:
            return
        self._told.add((found.pid, found.start_ticks))
        if len(self._told) > UNHELD_MAX:
            sys.stderr.write("plimsoll run: more such processes follow; `plimsoll status` shows them\n")
            return
        holds = f"process {found.pid} holds {format_bytes(found.used_bytes)} on {found.gpu}"
        remedy = "keep LD_PRELOAD and the PLIMSOLL_ variables (`sudo -E`, `su -p`, no `env -i`)"
        sys.stderr.write(f"plimsoll run: {holds}: {found.text}; {remedy}\n")


PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
"""Ctrl-C and Ctrl-backslash: the terminal sends these to the command as well."""


class _Signals:
    """Passes this process's signals on to the command once it has started; before, a signal cancels the start.

    An ignored signal stays ignored, here and in the command: `nohup` ignores SIGHUP, for example.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.current_task()
        numbers = (*PASSED_ON, *FROM_TERMINAL)
        self._numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.add_signal_handler(number, self._pass_on, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._numbers:
            asyncio.get_running_loop().remove_signal_handler(number)

    async def follow(self, process: asyncio.subprocess.Process) -> int:
        """Wait for the command, and return its exit code; cancelling ends the command."""
        self._process = process
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            self._send(signal.SIGKILL)
            await process.wait()
            raise
        return code if code >= 0 else 128 - code

    def _pass_on(self, number: int) -> None:
        if self._process is None:
            assert self._task is not None
            self._task.cancel()
        elif number not in FROM_TERMINAL:
            self._send(number)

    def _send(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


_PR_SET_CHILD_SUBREAPER: Final = 36

LOOK_S: Final = 5.0
"""Seconds between two looks for orphans that have ended. A child of our own is known by the second look."""


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end, as a daemon's do.

    By default init adopts them. Then nothing shows their command, once their environment was cleared too. A kernel
    that refuses leaves them to init.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def bury_orphans(children: AbstractSet[int]) -> NoReturn:
    """Take the exit codes of adopted processes for ever, so that they do not stay as zombies.

    Args:
        children: the pids of our own children, of which asyncio takes the exit codes.
    """
    dead: frozenset[int] = frozenset()
    while True:
        await asyncio.sleep(LOOK_S)
        dead = await asyncio.to_thread(_bury, dead - children) - children


def _bury(before: frozenset[int]) -> frozenset[int]:
    """Bury the children that were dead before; returns those that are dead now. None where the kernel lists none."""
    lists = [file.read_text().split() for file in Path("/proc/self/task").glob("*/children")]
    pids = {int(pid) for pids in lists for pid in pids}
    dead = {pid for pid in pids if (stat := read_stat(pid)) is not None and stat.has_ended}
    for pid in dead & before:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return frozenset(dead - before)
