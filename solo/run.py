"""`plimsoll run`: one command on this machine's GPU under the hook; no Kubernetes, no bus, no Redis.

The broker is the ledger: what it has registered is what was promised. What always holds: choosing a GPU and
registering the promise happen under one lock on the broker's directory, so commands that are started at the same
second see each other; a command that was killed leaves a registration that the next one clears away.
"""

import asyncio
import contextlib
import re
import signal
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from placer.core.ledger import Ledger
from placer.core.plan import Plan, Refusal, Request, check_supported, plan
from placer.core.policies import policy_named
from placer.core.registration import adopted
from placer.core.view import node_view
from placer.local.process import Enforcement, marks_of
from placer.local.runner import registration
from placer.local.survivors import processes_of
from plimsoll.broker.client import BrokerAwayError, BrokerClient
from plimsoll.broker.wire import RUN_NAMESPACE, Description
from plimsoll.contract import (
    BEST_EFFORT,
    DOMAIN,
    GPU_COUNT,
    GPU_ID,
    GPU_MEMORY,
    GPU_MODEL,
    GPU_SHARE,
    POLICY,
    SHARE_LIMIT,
    parse_pod,
)
from plimsoll.ids import ContainerName, NodeName, PodUid
from plimsoll.kube.models import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.quantity import GIB, format_bytes, parse_whole
from solo.machine import read_machine
from solo.private_broker import START_S, end_if_unused, ensure_broker, locked, make_root

MAIN: Final = ContainerName("main")
_POD_FIELD: Final = re.compile(r"(?:spec\.containers\[main\]\.resources|metadata\.annotations)\[([^]]*)\]")

MEMORY_VARIABLE: Final = "PLIMSOLL_GPU_MEMORY"
DEFAULT_BYTES: Final = GIB
"""Per GPU, where no size is given: ConVGPU's default (Kang et al., CLUSTER 2017, §III.B)."""

LEAVE_S: Final = 5.0
"""How long a broker may take to hear of a command's end: one that is restarted is back by then."""


class NoRoomError(PlimsollError):
    """No GPU of this machine has room now; the message says why."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to run and what it asks, in the words of the pod contract; None where nothing is asked.

    Attributes:
        command: the program and its arguments.
        hook_library: `libplimsoll.so`.
        broker_root: directory of the broker; a private one is started there if none answers.
        environment: of the command, usually our own; its `PLIMSOLL_GPU_MEMORY` stands in for `gpu_memory`.
        name: by which `plimsoll resize` finds it; the program's where None.
    """

    command: tuple[str, ...]
    hook_library: Path
    broker_root: Path
    environment: Mapping[str, str]
    gpu_memory: str | None = None
    gpu_share: str | None = None
    gpu: str | None = None
    gpu_share_limit: str | None = None
    gpu_id: str | None = None
    gpu_model: str | None = None
    best_effort: bool = False
    policy: str | None = None
    name: str | None = None


async def run_command(options: RunOptions) -> int:
    """Run a command on a GPU with room and wait for its end; cancelling ends it.

    Returns:
        Its exit code; 128 + n after signal n.

    Raises:
        InputError: the options cannot work.
        NoRoomError: no GPU has room now.
        NoGpuError: there is no GPU.
        BrokerAwayError: no broker could be reached or started.
        RefusedError: the broker will not have it.
    """
    pod = pod_of(options)
    _check(pod)
    uid, root = PodUid(pod.metadata.uid), options.broker_root
    await make_root(root)
    broker = BrokerClient(root, timeout_s=START_S)
    try:
        with _Signals() as signals:
            async with locked(root):
                await ensure_broker(root, options.environment)
                try:
                    process = await _placed_and_started(broker, pod, options)
                except BaseException:
                    await end_if_unused(broker, root, uid)
                    raise
            try:
                return await signals.follow(process)
            finally:
                await _leave(broker, root, uid)
    finally:
        await broker.close()


async def _leave(broker: BrokerClient, root: Path, pod: PodUid) -> None:
    """Take our registration back; a broker that is gone does not keep the command's exit code from whoever waits."""
    async with locked(root):
        try:
            async with asyncio.timeout(LEAVE_S):
                await broker.unregister(pod)
        except (TimeoutError, BrokerAwayError):
            effect = "the next command that is run there clears it away"
            sys.stderr.write(f"plimsoll run: no broker at {root} could be told of the end; {effect}\n")
        else:
            await end_if_unused(broker, root, pod)


async def _placed_and_started(
    broker: BrokerClient, pod: Pod, options: RunOptions
) -> asyncio.subprocess.Process:
    await _clear_away(broker)
    placed = await _choose(broker, pod)
    registered = await broker.register(registration(pod, placed))
    enforcement = Enforcement(options.hook_library, registered.containers[0], placed.gpus[MAIN])
    try:
        return await _start(options, placed.booking.pod, enforcement)
    except BaseException:
        await broker.unregister(placed.booking.pod)
        raise


def pod_of(options: RunOptions) -> Pod:
    """The pod that the options describe, so that they are read by the pod contract alone."""
    asked = {GPU_MEMORY: memory_asked(options), GPU_SHARE: options.gpu_share, GPU_COUNT: options.gpu}
    limits: dict[str, str | int | float] = {name: value for name, value in asked.items() if value is not None}
    annotations = {
        SHARE_LIMIT: options.gpu_share_limit,
        GPU_ID: options.gpu_id,
        GPU_MODEL: options.gpu_model,
        POLICY: options.policy,
        BEST_EFFORT: "true" if options.best_effort else None,
    }
    metadata = ObjectMeta(
        name=options.name or Path(options.command[0]).name,
        namespace=RUN_NAMESPACE,
        uid=str(uuid.uuid4()),
        annotations={name: value for name, value in annotations.items() if value is not None},
    )
    if not limits:  # best effort
        limits[GPU_COUNT] = "1"
    container = Container(
        name=MAIN, command=list(options.command), resources=ResourceRequirements(limits=limits)
    )
    return Pod(metadata=metadata, spec=PodSpec(containers=[container]))


def _check(pod: Pod) -> None:
    """Refuse what can never run, in the words of the command line.

    Raises:
        InputError: with the options' names in place of the pod contract's.
    """
    try:
        check_supported(parse_pod(pod))
    except InputError as error:
        field, problem, remedy = map(_in_options, (error.field, error.problem, error.remedy))
        raise InputError(field, error.value, problem, remedy) from error


def _in_options(text: str) -> str:
    """`spec.containers[main].resources[plimsoll.dev/gpu-share]` → `--gpu-share`: each option is named for its key."""
    return _POD_FIELD.sub(r"\1", text).replace("the pod's ", "").replace(DOMAIN, "--")


def memory_asked(options: RunOptions) -> str | None:
    """The size, by precedence: the option, the environment, the default; None for best effort and whole GPUs.

    ConVGPU (Kang et al., CLUSTER 2017, §III.B) takes the option, then the image's label, then 1 GiB. A command has no
    image, so the environment stands in the label's place.

    Raises:
        InputError: the variable, or the count of GPUs, is no whole number.
    """
    if options.gpu_memory is not None or options.best_effort:
        return options.gpu_memory
    given = options.environment.get(MEMORY_VARIABLE)
    if given:
        parse_whole(given, MEMORY_VARIABLE, "bytes")
        return given
    if options.gpu is None:
        return str(DEFAULT_BYTES)
    # Alone, a count asks for whole GPUs, as in a pod.
    return str(DEFAULT_BYTES * parse_whole(options.gpu, "--gpu", "GPUs")) if options.gpu_share else None


def default_shown() -> str:
    """The default size for people."""
    return format_bytes(DEFAULT_BYTES)


async def _choose(broker: BrokerClient, pod: Pod) -> Plan:
    description = await broker.describe()
    owners = {process.pid: use.pod for use in description.containers for process in use.processes}
    state = await asyncio.to_thread(read_machine, owners)
    ledger = _ledger(description, state.node)
    demand = parse_pod(pod)
    policy = policy_named(demand.policy or "headroom", "--policy")
    decided = plan(Request(PodUid(pod.metadata.uid), demand), [node_view(state)], ledger, policy)
    if isinstance(decided, Refusal):
        reasons = "; ".join(reason for given in decided.reasons.values() for reason in given)
        remedy = "ask for less, or wait for room: `plimsoll status` shows who has it"
        raise NoRoomError(f"no GPU of this machine will do: {reasons}; {remedy}")
    return decided


def _ledger(description: Description, node: NodeName) -> Ledger:
    ledger = Ledger()
    for _, booking in adopted(node, description):
        ledger.restore(booking)
    return ledger


async def _clear_away(broker: BrokerClient) -> None:
    """Have the broker forget commands that ended while nobody was there to tell it."""
    description = await broker.describe()
    for pod in {use.pod for use in description.containers if use.namespace == RUN_NAMESPACE}:
        if not await asyncio.to_thread(processes_of, pod):
            await broker.unregister(pod)


async def _start(options: RunOptions, pod: PodUid, enforcement: Enforcement) -> asyncio.subprocess.Process:
    environment = {**options.environment, **marks_of(pod, options.environment, enforcement)}
    try:
        return await asyncio.create_subprocess_exec(*options.command, env=environment)
    except (OSError, ValueError) as error:
        remedy = "give a program that exists on this machine"
        raise InputError("command", options.command[0], f"cannot be started ({error})", remedy) from error


PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
"""Ctrl-C and Ctrl-backslash: the terminal sends these to the command as well."""


class _Signals:
    """Signals for us are the command's, from the moment it exists; before, they end us."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.current_task()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in (*PASSED_ON, *FROM_TERMINAL):
            loop.add_signal_handler(number, self._pass_on, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (*PASSED_ON, *FROM_TERMINAL):
            asyncio.get_running_loop().remove_signal_handler(number)

    async def follow(self, process: asyncio.subprocess.Process) -> int:
        """The exit code of the command; cancelling ends it."""
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
