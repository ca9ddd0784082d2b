"""Wires the webhook's parts and owns their lifecycles: when one part ends, all end.

Health is served from the first moment. Reviews are answered once there is a certificate, whether or not the API
server can be reached after that.
"""

import asyncio
import contextlib
import gc
import time

import structlog
from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from placer.webhook.authority import Authority, Place
from placer.webhook.core.generations import Timing
from placer.webhook.metrics import Metrics
from placer.webhook.server import Certificates, serving_reviews
from placer.webhook.settings import PREFIX, SETTLE_CHECKS, Settings, rules_of, words
from plimsoll.kube.client import connect
from plimsoll.kube.configuration import kubeconfig_path
from plimsoll.kube.kubeconfig import own_namespace
from plimsoll.part.ending import tasks_until
from plimsoll.part.web import serving_tcp

log = structlog.get_logger(__name__)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Answer reviews until `stop` is set.

    Args:
        settings: checked.
        stop: set by a signal.

    Raises:
        InputError: a setting cannot work; in an exception group where a task found that out.
    """
    async with tasks_until(stop) as tasks:
        tasks.create_task(_serve(settings), name="serve")
    log.info("webhook stopped")


async def _serve(settings: Settings) -> None:
    metrics = Metrics()
    certificates = Certificates(metrics.certificates)
    namespace = settings.namespace or await asyncio.to_thread(own_namespace)
    async with contextlib.AsyncExitStack() as stack:
        transport = await stack.enter_async_context(connect(kubeconfig_path(settings.kubeconfig)))
        authority = Authority(
            transport,
            Place(namespace, settings.secret, words(settings.configurations), _names(settings, namespace)),
            Timing(settings.certificate_life_s, SETTLE_CHECKS * settings.check_s),
            settings.check_s,
            time.time,
            certificates.serve,
            metrics.certificates.failures.inc,
        )
        if settings.http_port is not None:
            health = serving_tcp(
                _routes(metrics, authority), settings.http_address, settings.http_port, PREFIX + "HTTP_PORT"
            )
            port = await stack.enter_async_context(health)
            log.info("http ready", address=settings.http_address, port=port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(authority.run(), name="certificates")
            tasks.create_task(_answer(settings, metrics, certificates), name="reviews")


async def _answer(settings: Settings, metrics: Metrics, certificates: Certificates) -> None:
    await certificates.ready.wait()
    rules = rules_of(settings)
    async with serving_reviews(
        rules, metrics.reviews, certificates, settings.address, settings.port, PREFIX + "PORT"
    ) as port:
        # The Kubernetes client alone has 100 000 objects. Without this, each collection of them would stop all
        # reviews for some 50 ms.
        gc.collect()
        gc.freeze()
        log.info("webhook ready", address=settings.address, port=port)
        await asyncio.Event().wait()


def _names(settings: Settings, namespace: str) -> frozenset[str]:
    service = f"{settings.service}.{namespace}.svc"
    return frozenset({service, *words(settings.names)})


def _routes(metrics: Metrics, authority: Authority) -> list[web.RouteDef]:
    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        missing = authority.missing
        return web.Response(status=503 if missing else 200, text="\n".join(missing or ["ok"]) + "\n")

    return [
        web.get("/metrics", make_aiohttp_handler(metrics.registry)),
        web.get("/healthz", healthy),
        web.get("/readyz", ready),
    ]
