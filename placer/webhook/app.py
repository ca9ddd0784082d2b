"""Wires the webhook's parts and owns their lifecycles: when one part ends, all end.

Health is served from the first moment. Reviews are answered once there is a certificate, whether or not the API
server can be reached after that.
"""

import asyncio
import contextlib
import gc
import time
from typing import Final

from placer.core.policies import listed_policies
from placer.webhook.authority import Authority, CertificateObjects
from placer.webhook.core.generations import CertificateTiming
from placer.webhook.metrics import WebhookMetrics
from placer.webhook.server import Certificates, serving_reviews
from placer.webhook.settings import PREFIX, Settings, rules_of, words
from plimsoll.kube.client import connect
from plimsoll.kube.configuration import kubeconfig_path
from plimsoll.kube.kubeconfig import own_namespace
from plimsoll.part.ending import tasks_until
from plimsoll.part.log import get_logger
from plimsoll.part.web import serving_health

SERVICE: Final = "plimsoll-webhook"
"""The Service by which the API server reaches the webhook; the certificate is for it."""
SECRET: Final = "plimsoll-webhook-certificates"  # noqa: S105 - a name
"""The Secret in which all replicas keep the certificates; the chart's rights name it."""
CONFIGURATIONS: Final = ("plimsoll-webhook", "plimsoll-webhook-dialects")
"""The MutatingWebhookConfigurations that get the CA bundle; one that does not exist is left out."""

LIFE_S: Final = 90 * 24 * 3600.0
"""Seconds for which a certificate is valid; the next is made after two thirds of it."""
CHECK_S: Final = 60.0
"""Seconds between two readings of Secret and configurations."""
SETTLE_CHECKS: Final = 10
"""A new bundle counts as known everywhere after this many rounds: each replica has then read it several times."""

log = get_logger()


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
    metrics = WebhookMetrics()
    certificates = Certificates(metrics.certificates)
    namespace = await asyncio.to_thread(own_namespace)
    async with contextlib.AsyncExitStack() as stack:
        transport = await stack.enter_async_context(connect(kubeconfig_path(settings.kubeconfig)))
        authority = Authority(
            transport,
            CertificateObjects(namespace, SECRET, CONFIGURATIONS, _names(settings, namespace)),
            CertificateTiming(LIFE_S, SETTLE_CHECKS * CHECK_S),
            CHECK_S,
            time.time,
            certificates.serve,
            metrics.certificates.failures.inc,
        )
        address, port, variable = settings.http_address, settings.http_port, PREFIX + "HTTP_PORT"
        health = serving_health(metrics.registry, lambda: authority.missing, address, port, variable)
        await stack.enter_async_context(health)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(authority.run(), name="certificates")
            tasks.create_task(_answer(settings, metrics, certificates), name="reviews")


async def _answer(settings: Settings, metrics: WebhookMetrics, certificates: Certificates) -> None:
    await certificates.ready.wait()
    rules = rules_of(settings)
    await asyncio.to_thread(listed_policies)
    async with serving_reviews(
        rules, metrics.reviews, certificates, settings.http_address, settings.port, PREFIX + "PORT"
    ) as port:
        # The Kubernetes client alone has 100 000 objects. Without this, each collection of them would stop all
        # reviews for some 50 ms.
        gc.collect()
        gc.freeze()
        log.info("webhook ready", address=settings.http_address, port=port)
        await asyncio.Event().wait()


def _names(settings: Settings, namespace: str) -> frozenset[str]:
    service = f"{SERVICE}.{namespace}.svc"
    return frozenset({service, *words(settings.names)})
