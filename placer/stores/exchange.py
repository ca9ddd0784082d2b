"""An exchange with Redis: bounded in time, and its failures as one error of the caller, with the cause for people."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from plimsoll.part.causes import cause_of
from plimsoll.part.errors import PlimsollError
from plimsoll.part.settings import PREFIX


@asynccontextmanager
async def exchange(request: str, timeout_s: float, away: type[PlimsollError]) -> AsyncIterator[None]:
    """Bound the exchange within the context.

    Args:
        request: what Redis is to do, for the error: `Redis did not <request>: …`.
        timeout_s: how long the exchange may take, in seconds.
        away: the error to raise where Redis did not answer, or not as expected.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except (RedisTimeoutError, TimeoutError) as error:
        # Redis, the network or this process's own event loop may have been too slow.
        late = f"no answer was read within {timeout_s:g} s"
        raise away(f"Redis did not {request}: {late}") from error
    except (RedisError, OSError) as error:
        raise away(f"Redis did not {request}: {cause_of(error, f'{PREFIX}REDIS_URL')}") from error
