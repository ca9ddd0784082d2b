"""Wires the broker's parts and owns their lifetimes: when one of them ends, all of them end."""

import asyncio
import contextlib
import fcntl
import importlib
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from hook.broker.core.audit.audit import BLOCK_BYTES
from hook.broker.core.enforcement import BY_LIBRARY
from hook.broker.core.ids import ContainerKey
from hook.broker.core.journal import Journal
from hook.broker.core.memory.arbiter import REMIND_S, MemoryArbiter
from hook.broker.core.memory.policies import wait_policy
from hook.broker.core.memory.requests import Overcommit
from hook.broker.core.node import Node
from hook.broker.core.registration import RECORD_NAME, PodRecord, check
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.csi.volumes import InlineVolumes
from hook.broker.driver_lines import DriverLines
from hook.broker.engine import Engine, NotCarriedOutError
from hook.broker.files.contexts import ContextsFile, driver_version
from hook.broker.files.journal import JournalFile
from hook.broker.files.shared import DIRECTORY_MODE, SharedFiles
from hook.broker.files.work import BrokerFiles
from hook.broker.gpu_health import struck
from hook.broker.layouts import Layouts
from hook.broker.measurements import Measurements
from hook.broker.proc import in_first_pid_namespace
from hook.broker.settings import Settings, check_node
from hook.broker.shares.gate_files import check_machine
from hook.broker.shares.utilisation import Utilisation
from hook.broker.sockets.control import bind_control_socket, serve_control
from hook.broker.sockets.hook import StartTask
from hook.broker.users import stop_once_unused, users_file
from plimsoll.broker.wire import CONTROL_NAME
from plimsoll.ids import NodeName
from plimsoll.native import HOOK_LIBRARY
from plimsoll.nvml.readings import XidSeen
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.causes import disk_remedy
from plimsoll.part.ending import tasks_until
from plimsoll.part.errors import CannotGoOnError, InputError
from plimsoll.part.log import get_logger
from plimsoll.part.processes import boot_id

LOCK_NAME: Final = "broker.lock"

SHARES: Final = ShareSettings()

AUDIT_S: Final = 30.0
"""Seconds between two readings of every slot, for changes that no event reported."""

JOURNAL_MOST: Final = 100_000
"""Announcements kept for subscribers that do not acknowledge: 40 MB on the disk."""

CGROUPS: Final = Path("/sys/fs/cgroup")
"""The node's control groups of version 2."""

SOCKET_S: Final = 5.0
"""Seconds between two looks whether the control socket still has its name: a command waits longer for a broker."""

_log: Final = get_logger()


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Be the node's broker until `stop` is set.

    Hooked processes run on under their last limits, and the next broker adopts them. Cancelling is as abrupt as a
    crash, and as harmless.

    Raises:
        InputError: a setting cannot work: the root directory cannot be used, another broker uses it, or the metrics
            port is taken, for example. An error found after the start comes in an exception group.
    """
    check_node(settings)
    if settings.kubelet_root and not settings.kubeconfig:
        remedy = "give access to the cluster, because volumes wait for the lines of its pods"
        raise InputError("PLIMSOLL_BROKER_KUBECONFIG", "", "is not set", remedy)
    check_machine()
    loop = asyncio.get_running_loop()
    files_thread = ThreadPoolExecutor(1, "files")
    with contextlib.ExitStack() as ends:
        ends.callback(files_thread.shutdown, wait=False)
        users = ends.enter_context(users_file(settings.users_lock))
        open_root = partial(_open_root, Path(settings.root))
        lock = await loop.run_in_executor(files_thread, open_root)
        journal_file = JournalFile(Path(settings.root))
        try:
            await _serve(settings, journal_file, files_thread, users, stop)
        finally:
            # The close is last in the thread's queue, so that nothing is written after the lock is given up.
            files_thread.submit(journal_file.close)
            await asyncio.shield(loop.run_in_executor(files_thread, os.close, lock))


async def _serve(
    settings: Settings,
    journal_file: JournalFile,
    files_thread: Executor,
    users: int | None,
    stop: asyncio.Event,
) -> None:
    root = Path(settings.root)
    loop = asyncio.get_running_loop()
    contexts = ContextsFile(root, await loop.run_in_executor(files_thread, driver_version))
    node = await loop.run_in_executor(files_thread, _read_node, settings, journal_file, contexts)
    volumes = await loop.run_in_executor(files_thread, _open_volumes, settings, node)
    disk = BrokerFiles(SharedFiles(root, volumes.release if volumes else None), journal_file, contexts)
    async with _driver_thread() as driver, tasks_until(stop) as group:
        start_task = partial(_start_task, group)
        lines = DriverLines(node, driver, CGROUPS, settings.enforcement)
        if settings.enforcement == "driver":
            await lines.require()
        engine = Engine(node, disk, files_thread, start_task, SHARES, lines)
        with contextlib.closing(engine):
            await loop.run_in_executor(files_thread, engine.health.restore)
            await _start(engine)
            async with _metrics(engine, settings, files_thread):
                listener = await loop.run_in_executor(files_thread, bind_control_socket, root)
                start_task(_serve_control(engine, driver, root, listener, start_task), "control socket")
                _start_tasks(start_task, settings, engine, driver, volumes)
                if users is not None:
                    start_task(stop_once_unused(users, stop), "users")
                _log.info("broker_ready", root=settings.root, containers=len(node.pods.containers))
                _give_up_input()
                await stop.wait()
    await loop.run_in_executor(files_thread, partial((root / CONTROL_NAME).unlink, missing_ok=True))
    if volumes is not None:
        await loop.run_in_executor(files_thread, volumes.close)
    _log.info("broker_stopped", journal_entries=node.journal_length)


def _give_up_input() -> None:
    """Close standard input, which nobody reads: `plimsoll run` waits for that on a broker of its own."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if nothing != 0:
        os.close(nothing)


def _start_tasks(
    start_task: StartTask,
    settings: Settings,
    engine: Engine,
    driver: DriverThread,
    volumes: InlineVolumes | None,
) -> None:
    """Start the tasks that the settings ask for."""
    start_task(_survey(engine), "audit")
    start_task(engine.driver_lines.run(AUDIT_S), "lines in the driver")
    start_task(engine.shares.compare(Utilisation(driver).ask), "compute time by NVML")
    if settings.measure:
        start_task(Measurements(engine, driver).run(), "measurements")
        start_task(_listen_for_xids(engine, start_task), "XID errors")
    layouts = Layouts()
    if settings.kubeconfig:
        start_task(_follow_pods(engine, settings, layouts), "pods")
    if volumes is not None:
        start_task(_serve_volumes(engine, volumes, layouts, settings), "volumes")


@contextlib.asynccontextmanager
async def _metrics(engine: Engine, settings: Settings, files_thread: Executor) -> AsyncIterator[None]:
    """Serve metrics until the context ends, if the settings name a port.

    Raises:
        InputError: the port is taken.
    """
    if settings.http_port is None:
        yield
        return
    # Imported here: the web server takes half of the broker's start, and most brokers of tests need none.
    loop = asyncio.get_running_loop()
    metrics = await loop.run_in_executor(files_thread, importlib.import_module, "hook.broker.metrics")
    async with metrics.serving_metrics(engine, settings.http_address, settings.http_port) as port:
        _log.info("metrics_ready", port=port)
        yield


@contextlib.asynccontextmanager
async def _driver_thread() -> AsyncIterator[DriverThread]:
    """The only thread that calls NVML. The thread starts with the first question."""
    driver = DriverThread()
    try:
        yield driver
    finally:
        await driver.close()


async def _start(engine: Engine) -> None:
    """Adopt what an earlier broker left. A failed layout (disk full) is logged, and the audits try it again."""
    try:
        await engine.start()
    except NotCarriedOutError as error:
        _log.error("adoption_incomplete", problem=str(error), remedy="mend that and restart the broker")


async def _listen_for_xids(engine: Engine, start_task: StartTask) -> None:
    """Judge the GPUs' health by XID errors too, which the driver reports once."""

    def take(seen: XidSeen) -> None:
        start_task(engine.judge(struck(seen)), "judge an XID error")

    # Imported in a thread, like the metrics: `pynvml` is slow to import.
    listener = await asyncio.to_thread(importlib.import_module, "plimsoll.nvml.xids")
    await listener.XidListener(take).run()


async def _follow_pods(engine: Engine, settings: Settings, layouts: Layouts) -> None:
    """Watch the pods of this Kubernetes node."""
    # Imported here, like the metrics: the Kubernetes client is slow to import.
    pods = await asyncio.to_thread(importlib.import_module, "hook.broker.pods")
    pool = None
    if settings.pool_namespace:
        pool = pods.Pool(settings.pool_namespace, Path(settings.pod_resources_socket))
    node = NodeName(settings.node)
    await pods.follow_pods(engine, node, settings.kubeconfig, layouts, engine.driver_lines, pool)


async def _serve_volumes(
    engine: Engine, volumes: InlineVolumes, layouts: Layouts, settings: Settings
) -> None:
    """Serve the kubelet's requests for volumes."""
    # Imported here, like the metrics: gRPC takes 20 MB, and brokers of `plimsoll run` have no kubelet.
    csi = await asyncio.to_thread(importlib.import_module, "hook.broker.csi.service")
    await csi.serve_volumes(engine, volumes, layouts, settings)


async def _serve_control(
    engine: Engine, driver: DriverThread, root: Path, listener: socket.socket, start_task: StartTask
) -> None:
    """Serve the control socket, and make it anew where somebody removed it, for instance a cleaner of old files."""
    name = "connections to the control socket"
    serving = start_task(serve_control(engine, driver, listener, start_task), name)
    while True:
        await _until_removed(root / CONTROL_NAME)
        try:
            listener = await asyncio.to_thread(bind_control_socket, root)
        except OSError as error:
            details = {"effect": "nobody can ask the broker", "remedy": "mend that; the broker tries again"}
            engine.bounded_log.error("control_socket_removed", None, problem=str(error), **details)
            continue
        serving.cancel()
        serving = start_task(serve_control(engine, driver, listener, start_task), name)
        _log.warning("control_socket_made_anew", file=str(root / CONTROL_NAME))


async def _until_removed(file: Path) -> None:
    while True:
        await asyncio.sleep(SOCKET_S)
        try:
            await asyncio.to_thread(file.lstat)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.debug("control_socket_not_seen", problem=str(error))


async def _survey(engine: Engine) -> None:
    """Survey every container now and then, for changes that no event reported."""
    while True:
        await asyncio.sleep(AUDIT_S)
        try:
            await engine.survey()
        except NotCarriedOutError as error:
            _log.error("audit_incomplete", problem=str(error), remedy="the next audit tries again")


def _start_task(group: asyncio.TaskGroup, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return group.create_task(work, name=name)


def _open_root(root: Path) -> int:
    """Make the root directory and lock it; returns the lock's descriptor, to be held open."""
    try:
        root.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        lock = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        remedy = disk_remedy(error, "run as root, or set PLIMSOLL_BROKER_ROOT to a directory of your own")
        raise InputError("PLIMSOLL_BROKER_ROOT", str(root), f"cannot be used ({error})", remedy) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        remedy = "end that one first, or give this one another root"
        raise InputError("PLIMSOLL_BROKER_ROOT", str(root), "belongs to a running broker", remedy) from error
    return lock


def _read_node(settings: Settings, journal_file: JournalFile, contexts: ContextsFile) -> Node:
    root = Path(settings.root)
    if not in_first_pid_namespace():
        remedy = "run it with hostPID: true, unless all processes are in its own pid namespace"
        _log.warning("pid_namespace_is_not_the_hosts", remedy=remedy)
    records = [record for path in _record_paths(root) if (record := _read_record(path)) is not None]
    journal = Journal(journal_file.read(), JOURNAL_MOST)
    # Nothing waits where the library holds no line: an allocation past the card then fails.
    waits = settings.overcommit and settings.enforcement in BY_LIBRARY
    overcommit = _overcommit(settings, records) if waits else None
    node = Node(journal, records, boot_id(), contexts.read(), overcommit, settings.enforcement)
    node.is_measuring = settings.measure
    return node


def _open_volumes(settings: Settings, node: Node) -> InlineVolumes | None:
    """Prepare the inline volumes, if the settings name a kubelet, and find those of running pods."""
    if not settings.kubelet_root:
        return None
    volumes = InlineVolumes(Path(settings.root), Path(settings.kubelet_root))
    try:
        volumes.open(HOOK_LIBRARY)
        volumes.adopt({container.pod for container in node.pods.containers})
    except OSError as error:
        raise CannotGoOnError(f"volumes cannot be prepared: {error}") from error
    return volumes


def _overcommit(settings: Settings, records: Iterable[PodRecord]) -> Overcommit:
    """The arbiter under this node's policy, with the bytes that the pages of an earlier broker grant."""
    files = SharedFiles(Path(settings.root))
    keys = [ContainerKey(record.pod.pod, one.name) for record in records for one in record.pod.containers]
    arbiter = MemoryArbiter(
        wait_policy(settings.wait_policy, os.urandom(16)),
        remind_s=REMIND_S,
        longest_wait_s=settings.wait_longest_s,
        block_bytes=BLOCK_BYTES,
    )
    return Overcommit(arbiter, {key: files.granted(key) for key in keys})


def _record_paths(root: Path) -> list[Path]:
    return sorted((root / "limits").glob(f"*/{RECORD_NAME}"))


def _read_record(path: Path) -> PodRecord | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=PodRecord)
        check(record.pod)
    except (OSError, msgspec.MsgspecError, InputError) as error:
        remedy = "register the pod again"
        _log.error("record_damaged", file=str(path), problem=str(error), remedy=remedy)
        return None
    return record
