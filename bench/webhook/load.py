"""Sends reviews at a fixed rate, whether or not earlier ones were answered."""

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp

from bench.webhook.reviews import ReviewCase, check

RATE_PER_S: Final = 200


async def measure(
    http: aiohttp.ClientSession, url: str, given: Sequence[ReviewCase], seconds: float
) -> list[float]:
    """Send reviews at the rate; returns each one's time from its due moment to its whole answer, in ms."""
    loop, took_ms = asyncio.get_running_loop(), []
    answers: list[tuple[ReviewCase, bytes]] = []

    async def one(case: ReviewCase, due_s: float) -> None:
        async with http.post(url, data=case.body, headers={"Content-Type": "application/json"}) as answer:
            body = await answer.read()
            assert answer.status == 200, body
        took_ms.append((loop.time() - due_s) * 1000)
        answers.append((case, body))

    began_s = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for at in range(int(RATE_PER_S * seconds)):
            due_s = began_s + at / RATE_PER_S
            await asyncio.sleep(due_s - loop.time())  # the rate of reviews is the experiment
            tasks.create_task(one(given[at % len(given)], due_s))
    for case, body in answers:
        check(case, body)
    return took_ms
