"""HTTPS without an API server: any body gets an answer or a 4xx, never a 5xx."""

import asyncio
import io
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.webhook.certificate import make_generation
from placer.webhook.core.judgement import AdmissionRules
from placer.webhook.metrics import WebhookMetrics
from placer.webhook.server import BODY_BYTES, LONG_BYTES, PATH, Certificates, serving_reviews
from tests.placer.webhook.core.pods import gpu_pod
from tests.placer.webhook.core.reviews import ANYTHING, assert_well_formed, damaged, review
from tests.servers.waiting import until_true
from tests.slow import examples

NAMES = frozenset({"127.0.0.1"})


async def test_a_client_that_leaves_in_the_middle_of_its_review_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It gets no answer and makes no log line. An API server that gives up waiting does the same."""
    metrics = WebhookMetrics()
    certificates = Certificates(metrics.certificates)
    made = make_generation(NAMES, 3600, time.time())
    await certificates.serve(made)
    context = ssl.create_default_context(cadata=made.authority)
    async with serving_reviews(
        AdmissionRules(), metrics.reviews, certificates, "127.0.0.1", 0, "PORT"
    ) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{{".encode())
        await writer.drain()
        writer.close()
        labels = {"outcome": "malformed"}
        name = "plimsoll_webhook_reviews_total"
        await until_true(lambda: metrics.registry.get_sample_value(name, labels) == 1)
    assert not [one for one in caplog.records if one.name.startswith("aiohttp")]


@asynccontextmanager
async def served() -> AsyncIterator[tuple[aiohttp.ClientSession, str, Certificates]]:
    """A server with a certificate, a client that trusts it, and the URL."""
    made = make_generation(NAMES, 3600, time.time())
    certificates = Certificates(WebhookMetrics().certificates)
    await certificates.serve(made)
    context = ssl.create_default_context(cadata=made.authority)
    async with (
        serving_reviews(
            AdmissionRules(), WebhookMetrics().reviews, certificates, "127.0.0.1", 0, "PORT"
        ) as port,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http,
    ):
        yield http, f"https://127.0.0.1:{port}{PATH}", certificates


@pytest.mark.hypothesis
async def test_no_body_gets_a_server_error() -> None:
    """Damaged reviews, any JSON and any bytes, with any content type, in a row over one connection."""
    async with served() as (http, url, _):
        loop = asyncio.get_running_loop()

        async def post(body: bytes, kind: str) -> tuple[int, bytes]:
            async with http.post(url, data=body, headers={"Content-Type": kind}) as answer:
                return answer.status, await answer.read()

        bodies = (
            damaged().map(lambda value: json.dumps(value).encode())
            | ANYTHING.map(lambda value: json.dumps(value).encode())
            | st.binary(max_size=100)
        )

        @given(bodies, st.sampled_from(["application/json", "text/plain", "x"]))
        @settings(max_examples=examples(300))
        def drawn(body: bytes, kind: str) -> None:
            status, text = asyncio.run_coroutine_threadsafe(post(body, kind), loop).result(60)
            assert status == 200 or 400 <= status < 500
            if status == 200:
                assert_well_formed(text, json.loads(body)["request"]["uid"])

        await asyncio.to_thread(drawn)


async def test_long_bodies_are_answered_and_longer_ones_refused() -> None:
    """A body of megabytes is answered in a thread, one past the bound gets 413, and other methods 405."""
    async with served() as (http, url, _):
        big = [{"name": f"V{at}", "value": "x" * 1000} for at in range(3000)]
        body = json.dumps(review(gpu_pod(env=big), "CREATE", gpu_pod(env=big))).encode()
        assert LONG_BYTES < len(body) < BODY_BYTES
        for _ in range(2):
            answers = await asyncio.gather(*(http.post(url, data=io.BytesIO(body)) for _ in range(4)))
            assert [one.status for one in answers] == [200] * 4
            assert_well_formed(await answers[0].read(), review({})["request"]["uid"])
        async with http.post(url, data=_chunks(BODY_BYTES + 1)) as answer:
            assert answer.status == 413
        async with http.get(url) as answer:
            assert answer.status == 405


async def _chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(0, size, 2**16):
        yield b" " * 2**16


async def test_new_connections_get_the_new_certificate() -> None:
    """After a change, old connections go on, and new ones see the new certificate, with and without SNI."""
    async with served() as (http, url, certificates):
        body = json.dumps(review(gpu_pod())).encode()
        async with http.post(url, data=body) as answer:
            assert answer.status == 200
        other = make_generation(NAMES | {"localhost"}, 3600, time.time())
        await certificates.serve(other)
        async with http.post(url, data=body) as answer:
            assert answer.status == 200
        context = ssl.create_default_context(cadata=other.authority)
        for host in ("127.0.0.1", "localhost"):
            connector = aiohttp.TCPConnector(ssl=context)
            async with (
                aiohttp.ClientSession(connector=connector) as fresh,
                fresh.post(url, data=body, server_hostname=host) as answer,
            ):
                assert answer.status == 200
