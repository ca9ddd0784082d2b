"""Wires the pool controller's parts and owns their lifecycles: when one part ends, all end."""

import asyncio
import contextlib
import math
import secrets
import socket
from typing import Final

from placer.pool.controller import Controller
from placer.pool.core.planner import Planner
from placer.pool.core.release_policy import release_policy_of
from placer.pool.events import EventRecorder
from placer.pool.metrics import PoolMetrics
from placer.pool.settings import PREFIX, Settings
from plimsoll.kube.client import connect
from plimsoll.kube.configuration import kubeconfig_path
from plimsoll.kube.lease import Lease
from plimsoll.kube.lease_rules import LeaseTiming
from plimsoll.kube.transport import Transport
from plimsoll.part.ending import tasks_until
from plimsoll.part.log import get_logger
from plimsoll.part.web import serving_health

GRACE_S: Final = 5.0
"""Seconds without a live watch, or without an answer about the Lease, after which the controller is not ready."""

LEASE: Final = "plimsoll-pool"
"""The Lease, in the pool's namespace, of the controller that acts; the chart's rights name it."""
LEASE_S: Final = 3
"""Whole seconds for which the Lease is good."""

ACQUIRE_S: Final = 120.0
"""Seconds in which a reservation must name its GPU; then it is made anew. Pulling its image counts."""

log = get_logger()


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Keep the pool until `stop` is set. Reservations stay: the next controller goes on with them.

    Args:
        settings: checked.
        stop: set by a signal.

    Raises:
        InputError: a setting cannot work; in an exception group where a task found that out.
        LeaseLostError: another controller has the Lease; likewise.
    """
    async with tasks_until(stop) as tasks:
        tasks.create_task(_serve(settings), name="serve")
    log.info("pool stopped")


async def _serve(settings: Settings) -> None:
    metrics = PoolMetrics()
    async with contextlib.AsyncExitStack() as stack:
        transport = await stack.enter_async_context(connect(kubeconfig_path(settings.kubeconfig)))
        lease = Lease(
            transport,
            settings.namespace,
            LEASE,
            f"{socket.gethostname()}-{secrets.token_hex(8)}",
            LeaseTiming(LEASE_S),
            on_failure=metrics.write_failures.inc,
        )
        metrics.leader.set_function(lease.is_held)
        controller = _controller(settings, transport, lease, metrics)
        address, port, variable = settings.http_address, settings.http_port, PREFIX + "HTTP_PORT"
        health = serving_health(metrics.registry, lambda: _missing(controller), address, port, variable)
        await stack.enter_async_context(health)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_lead(lease, controller), name="lease")
                tasks.create_task(controller.run(), name="controller")
        finally:
            await lease.release()


def _controller(settings: Settings, transport: Transport, lease: Lease, metrics: PoolMetrics) -> Controller:
    planner = Planner(release_policy_of(PREFIX + "POLICY", settings.policy), ACQUIRE_S)
    events = EventRecorder(transport, settings.namespace, socket.gethostname())
    return Controller(transport, lease, settings.template, planner, events, metrics)


async def _lead(lease: Lease, controller: Controller) -> None:
    """Take part in the election once all pods and nodes were read."""
    await controller.synced.wait()
    await lease.run()


def _missing(controller: Controller) -> list[str]:
    missing = []
    if not controller.synced.is_set():
        missing.append("pods and nodes are still being read")
    elif controller.broken_s() > GRACE_S:
        missing.append("a watch of pods or nodes is broken")
    if max(GRACE_S, controller.lease.timing.deadline_s) < controller.lease.silent_s() < math.inf:
        missing.append("the API server does not answer about the lease")
    return missing
