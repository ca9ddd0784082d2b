"""The checks of Redis: the login, and whether the sorted list is filled."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from plimsoll.part.causes import cause_of
from plimsoll.part.errors import InputError
from plimsoll.part.settings import shown_url
from plimsoll.placer_api.redis_keys import GENERATION, NODES
from plimsoll.redis_client import check_redis_url, open_redis
from plimsoll_cli.doctor.finding import Finding, failed, failed_by, ok, skipped

LOGIN: Final = "--redis-url or PLIMSOLL_REDIS_URL"
ANSWER_S: Final = 5.0


async def redis_list(url: str) -> AsyncIterator[Finding]:
    """The findings, one after another."""
    if not url:
        yield skipped("redis", "no address of Redis was given", f"give {LOGIN}")
        return
    try:
        check_redis_url(LOGIN, url)
        client = open_redis(url, timeout_s=ANSWER_S, connections=1)
    except InputError as error:
        yield failed_by("redis", error)
        return
    try:
        nodes, is_filled = await client.zcard(NODES), await client.exists(GENERATION)
        master, refusal = await _master(client), await _refusal(client)
    except (RedisError, OSError, TimeoutError) as error:
        yield failed_by("redis", f"Redis at {shown_url(url)} cannot be read: {cause_of(error, LOGIN)}")
        return
    finally:
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await client.aclose()
    if master:
        problem = f"{shown_url(url)} is a read-only replica, so no placer can write the list there"
        yield failed("redis", problem, f"name its master, {master}, in {LOGIN}")
        return
    if refusal is not None:
        cause = cause_of(refusal, LOGIN)
        yield failed_by("redis", f"{shown_url(url)} takes no writes of a placer: {cause}")
        return
    yield ok("redis", f"{shown_url(url)} answers")
    if is_filled:
        yield ok("list", f"nodes in the sorted list: {nodes}")
        return
    remedy = (
        "start a placer, or compare its PLIMSOLL_REDIS_URL with this address and see its log: pods are placed "
        "meanwhile, and readers of the list see none"
    )
    yield failed("list", "no placer has filled the sorted list", remedy)


async def _master(client: Redis) -> str:
    """Host and port of the server that this one copies; empty where it copies none, or does not say."""
    with contextlib.suppress(ResponseError):  # this user may not ask
        info = await client.info("replication")
        if info.get("role") == "slave":
            return f"{info['master_host']}:{info['master_port']}"
    return ""


async def _refusal(client: Redis) -> ResponseError | None:
    """Redis' answer to a write that changes nothing, if Redis refuses it; a user without the right does not count."""
    try:
        await client.setrange(GENERATION, 0, "")
    except NoPermissionError:
        pass
    except ResponseError as error:
        return error
    return None
