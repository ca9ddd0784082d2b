"""The client of Redis (or Valkey). It connects to one server, or to the server that the sentinels name as the master.

What always holds: a new connection goes to the master of that moment, because each connection asks the sentinels
first. A server that was demoted meanwhile refuses writes; its connection is closed then, and the next one asks again.
The client waits for nothing but its timeouts: waiting for the end of a failover is the callers' part. An `exchange`
is bounded in time, and its failures are one error of the caller, with the cause for people.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from plimsoll.part.causes import cause_of
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.settings import PREFIX, check_url, shown_url

SENTINEL_SCHEMES: Final = ("redis+sentinel", "rediss+sentinel")
SENTINEL_PORT: Final = 26379
SENTINEL_FORM: Final = "redis+sentinel://host:26379,host:26379/master/0"

SENTINEL_PART: Final = 0.2
"""The part of an exchange's time that one sentinel may take, so that a second and a third can be asked in time."""

# Both protocol and form of responses differ from one version of redis-py to the next, unless they are given.
_RESPONSES: Final = {"protocol": 2, "legacy_responses": True, "decode_responses": True}


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """A master, and the sentinels that know its address.

    Attributes:
        sentinels: host and port of each.
        master: the master's name among the sentinels.
        db: the number of the database.
        tls: whether the client connects to sentinels and servers by TLS.
        login: `username` and `password` for the servers, where given.
        sentinel_login: the same for the sentinels.
    """

    sentinels: tuple[tuple[str, int], ...]
    master: str
    db: int = 0
    tls: bool = False
    login: Mapping[str, str] = field(default_factory=dict)
    sentinel_login: Mapping[str, str] = field(default_factory=dict)


def check_redis_url(variable: str, url: str) -> None:
    """Refuse a text that is no URL of Redis.

    Args:
        variable: the environment variable that holds it.
        url: `redis://`, `rediss://`, `unix://`, or sentinels as in `parse_sentinel_url`.

    Raises:
        InputError: naming the variable.
    """
    if _is_by_sentinel(url):
        parse_sentinel_url(variable, url)
    else:
        check_url(variable, url, ("redis", "rediss", "unix"))
        _check_options(variable, url)


def _check_options(variable: str, url: str) -> None:
    """Refuse a database that is no number, and options behind the `?` that are unknown or cannot work."""
    parts = urlsplit(url)
    database = unquote(parts.path).strip("/")
    if parts.scheme != "unix" and database and not _is_number(database):
        # redis-py would take the first database for it.
        problem = f"has {database!r} where the number of a database stands"
        raise InputError(variable, shown_url(url), problem, "give a number, as in redis://host:6379/0")
    known = {**OPTIONS, **(TLS_OPTIONS if parts.scheme == "rediss" else {})}
    for name, value in parse_qsl(parts.query):
        if name not in known:
            # The value is not shown: a password stands there if its option is misspelt.
            problem = f"has {name!r}, which is no option of such a URL"
            remedy = "correct its name, or leave it out"
            raise InputError(variable, shown_url(url), problem, remedy)
        if not known[name](value):
            problem = f"has the option {name!r} with the value {value!r}, which cannot work"
            raise InputError(variable, shown_url(url), problem, "correct the value, or leave it out")


def _is_any(_: str) -> bool:
    return True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _is_count(text: str) -> bool:
    return _is_number(text) and int(text) > 0


def _is_time(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


OPTIONS: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "db": _is_number,
        "max_connections": _is_count,
        "health_check_interval": _is_number,
        **dict.fromkeys(("socket_timeout", "socket_connect_timeout", "timeout"), _is_time),
        **dict.fromkeys(("username", "password", "client_name"), _is_any),
    }
)
"""The options of a URL, each with the check of its value. redis-py takes more, such as the form of answers, which the
placer decides. It also takes values that fail later, such as no connections at all."""

TLS_OPTIONS: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "ssl_cert_reqs": ("none", "optional", "required").__contains__,
        "ssl_check_hostname": ("true", "false").__contains__,
        **dict.fromkeys(("ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_ciphers"), _is_any),
        **dict.fromkeys(("ssl_certfile", "ssl_keyfile", "ssl_password"), _is_any),
    }
)
"""Further options of `rediss://`."""


def parse_sentinel_url(variable: str, url: str) -> SentinelUrl:
    """Read `redis+sentinel://[user:password@]host[:port],…/master[/db][?sentinel_username=…&sentinel_password=…]`.

    With `rediss+sentinel://`, the client connects to sentinels and servers by TLS.

    Raises:
        InputError: naming the variable; its value is shown without passwords.
    """

    def refused(problem: str, remedy: str = f"give {SENTINEL_FORM}") -> InputError:
        return InputError(variable, shown_url(url.partition("?")[0]), problem, remedy)

    # `urlsplit` knows one host alone: Debian 12's refuses brackets that enclose one of several.
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("?")[0].partition("/")
    login, _, hosts = authority.rpartition("@")
    try:
        sentinels = tuple(_host_and_port(host) for host in hosts.split(","))
    except ValueError as error:
        raise refused(f"names no sentinels ({error})") from error
    master, _, db = path.strip("/").partition("/")
    if not master:
        raise refused("names no master")
    if db and not _is_number(db):
        raise refused(f"has {db!r} where the number of a database stands")
    options = dict(parse_qsl(rest.partition("?")[2], keep_blank_values=True))
    if unknown := sorted(options.keys() - {"sentinel_username", "sentinel_password"}):
        raise refused(
            f"has the unknown option {unknown[0]!r}", "give sentinel_username and sentinel_password"
        )
    username, _, password = login.partition(":")
    return SentinelUrl(
        sentinels=sentinels,
        master=unquote(master),
        db=int(db or 0),
        tls=scheme == "rediss+sentinel",
        login=_login(unquote(username), unquote(password)),
        sentinel_login=_login(options.get("sentinel_username", ""), options.get("sentinel_password", "")),
    )


def open_redis(url: str, *, timeout_s: float, connections: int) -> redis.Redis:
    """A client that is not connected yet; close it by `aclose`, which also closes its pool.

    Args:
        url: a URL that passed `check_redis_url`.
        timeout_s: the longest wait for a connection, for an answer, and for a place in the pool.
        connections: the most connections at once; more callers wait.

    Raises:
        InputError: the URL names sentinels and cannot be read.
    """
    options: dict[str, Any] = {
        **_RESPONSES,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        # A second try replaces a connection that went stale in the pool. Callers that must wait longer try again.
        "retry": Retry(NoBackoff(), 1),
        "max_connections": connections,
        # Without this, every new connection reads the library's version from the disk, on the event loop.
        "driver_info": None,
        "timeout": timeout_s,
    }
    if not _is_by_sentinel(url):
        return redis.Redis.from_pool(redis.BlockingConnectionPool.from_url(url, **options))
    given = parse_sentinel_url("url", url)
    tls = {"ssl": True} if given.tls else {}
    # redis-py leaves the constructors of its sentinel classes without types.
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        given.sentinels,
        sentinel_kwargs={
            **_RESPONSES,
            "socket_timeout": timeout_s * SENTINEL_PART,
            "socket_connect_timeout": timeout_s * SENTINEL_PART,
            # By default redis-py asks a dead sentinel ten times, with pauses, before it asks the next one.
            "retry": Retry(NoBackoff(), 0),
            "driver_info": None,
            **tls,
            **given.sentinel_login,
        },
    )
    pool = _MasterPool(given.master, sentinel, db=given.db, **tls, **given.login, **options)
    return redis.Redis.from_pool(pool)


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


class _MasterPool(SentinelConnectionPool, redis.BlockingConnectionPool):
    """Connections to the master. Callers wait for a free one, and the sentinels' connections close with it.

    Connections ask the sentinels one at a time. redis-py moves a sentinel that answers to the head of its list, by
    the sentinel's place before the answer. Two at once would put one sentinel in the place of another, which is then
    lost: never asked again, and never closed.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - redis-py's own arguments
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]  # as in `open_redis`
        self._asking = asyncio.Lock()

    async def get_master_address(self) -> tuple[str, int]:
        async with self._asking:
            host, port = await super().get_master_address()  # type: ignore[no-untyped-call]  # as above
            return host, port

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


def _is_by_sentinel(url: str) -> bool:
    return url.partition("://")[0].lower() in SENTINEL_SCHEMES


def _host_and_port(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"{text!r} has no host")
    if parts.port == 0:
        raise ValueError(f"{text!r} has port 0")
    return parts.hostname, parts.port or SENTINEL_PORT


def _login(username: str, password: str) -> dict[str, str]:
    return {name: value for name, value in (("username", username), ("password", password)) if value}
