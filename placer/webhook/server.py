"""HTTPS for reviews: `POST /review`. Certificates change without a restart, and connections are kept meanwhile.

What always holds: a body that is no review gets a 4xx, every other one gets a review's answer, and no tenant's object
gets a 5xx. A long body is read and answered in a thread, so that other reviews do not wait for it. Private keys are
never on a disk.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from aiohttp import web

from placer.webhook.core.generations import Generation
from placer.webhook.core.judgement import AdmissionRules
from placer.webhook.core.review import NoReviewError, ReviewAnswer, answer
from placer.webhook.metrics import CertificateMetrics, ReviewMetrics
from plimsoll.part.log import get_logger
from plimsoll.part.web import open_tcp, port_of, read_body, serving

PATH: Final = "/review"

BODY_BYTES: Final = 16 * 2**20
"""The API server takes bodies of 3 MiB, fills in defaults, and sends the object before a change and after it."""

LONG_BYTES: Final = 2**17
"""A longer body takes more than some milliseconds. A pod of a hundred containers is shorter."""

LONG_AT_ONCE: Final = 2
"""Long bodies that are answered at the same time. Each takes some ten times its size in memory."""

log = get_logger()


class Certificates:
    """The TLS context of the server, with the certificate of the moment for each new connection."""

    def __init__(self, metrics: CertificateMetrics) -> None:
        self._metrics = metrics
        self._served: Generation | None = None
        self._current: ssl.SSLContext | None = None
        self.ready = asyncio.Event()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.sni_callback = self._swap

    async def serve(self, generation: Generation) -> None:
        """Use this certificate for all connections from now on."""
        if generation == self._served:
            return
        self._current = await asyncio.to_thread(_context, generation)
        if self._served is None:
            # The first also stays in the listener's own context, which needs one before it asks for the current one.
            await asyncio.to_thread(_load, self.context, generation)
        else:
            self._metrics.rotations.inc()
        self._served = generation
        self._metrics.expiry_seconds.set(generation.expires_s)
        self.ready.set()
        log.info("serving a certificate", expires_s=generation.expires_s)

    def _swap(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._current is not None:
            connection.context = self._current


class _Reviewer:
    """Answers the requests at `PATH`, and counts the answers."""

    def __init__(self, rules: AdmissionRules, metrics: ReviewMetrics) -> None:
        self._rules = rules
        self._metrics = metrics
        self._long_bodies = asyncio.Semaphore(LONG_AT_ONCE)

    async def review(self, request: web.Request) -> web.Response:
        try:
            body = await read_body(request)
        except web.HTTPBadRequest:
            self._metrics.answered.labels("malformed").inc()
            raise
        began = perf_counter()
        try:
            given = await self._answer(body)
        except NoReviewError as error:
            self._metrics.answered.labels("malformed").inc()
            return web.Response(status=400, text=f"{error}\n")
        self._metrics.seconds.observe(perf_counter() - began)
        self._metrics.answered.labels(given.outcome).inc()
        if given.is_translated:
            self._metrics.translated.inc()
        return web.Response(body=given.body, content_type="application/json")

    async def _answer(self, body: bytes) -> ReviewAnswer:
        if len(body) <= LONG_BYTES:
            return answer(body, self._rules)
        async with self._long_bodies:
            return await asyncio.to_thread(answer, body, self._rules)


@asynccontextmanager
async def serving_reviews(
    rules: AdmissionRules,
    metrics: ReviewMetrics,
    certificates: Certificates,
    address: str,
    port: int,
    variable: str,
) -> AsyncIterator[int]:
    """Answer reviews until the context ends; yields the port's number, also where 0 was given.

    Args:
        rules: the cluster's choices.
        metrics: counts answers.
        certificates: ready.
        address: an address of this machine.
        port: a TCP port, or 0 for any free one.
        variable: the setting that named the port.

    Raises:
        InputError: the port is taken, or the address is not one of this machine.
    """
    reviewer = _Reviewer(rules, metrics)
    listeners = await open_tcp(address, port, variable)
    number, routes = port_of(listeners), [web.post(PATH, reviewer.review)]
    async with serving(routes, listeners, body_bytes=BODY_BYTES, tls=certificates.context):
        yield number


def _context(generation: Generation) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, generation)
    return context


def _load(context: ssl.SSLContext, generation: Generation) -> None:
    """Load certificate and key. OpenSSL reads them from a file, and this one is in memory."""
    file = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        text = (generation.certificate + generation.key).encode()
        path = Path(f"/proc/self/fd/{file}")
        path.write_bytes(text)
        context.load_cert_chain(path)
    finally:
        os.close(file)
