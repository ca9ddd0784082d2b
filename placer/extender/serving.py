"""Serves the extender by the placer's settings, for as long as the placer runs."""

import asyncio
from typing import NoReturn

from placer.extender.extender import Extender
from placer.extender.http import serving_extender
from placer.extender.metrics import ExtenderMetrics
from placer.settings import Settings
from plimsoll.part.log import get_logger


async def serve_extender(settings: Settings, port: int, extender: Extender) -> NoReturn:
    """Serve until cancelled.

    Raises:
        InputError: the port or a file cannot be used.
    """
    files = settings.extender_tls
    context = await asyncio.to_thread(files.context)
    names = (name.strip() for name in settings.extender_clients.split(","))
    clients = frozenset(name for name in names if name) if settings.extender_client_ca else frozenset()
    metrics = ExtenderMetrics(extender.decider.metrics.registry)
    address = settings.http_address, port
    async with serving_extender(extender, address, metrics, context, clients) as number:
        get_logger().info("extender ready", address=settings.http_address, port=number)
        if context is not None:
            await files.follow(context)
        await asyncio.get_running_loop().create_future()  # until cancelled
    raise AssertionError("a future that nobody sets has ended")
