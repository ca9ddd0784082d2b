"""The checks of Redis, against a real Valkey."""

import pytest
import redis.asyncio as redis

from placer.stores.scores import ScoreList, ScoresAwayError
from plimsoll.part.causes import cause_of
from plimsoll.placer_api.redis_keys import GENERATION, NODES
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.doctor.finding import Verdict
from plimsoll_cli.doctor.redis import redis_list
from tests.plimsoll_cli.doctor.findings import found, of, verdicts
from tests.servers.waiting import PATIENCE_S


async def test_a_list_that_a_placer_filled(valkey: EmbeddedServer) -> None:
    """The nodes of the list are counted."""
    async with redis.Redis.from_url(valkey.url, protocol=2) as client:
        await client.zadd(NODES, {"n1": 0.5, "n2": 0.7})
        await client.set(GENERATION, "token")
    findings = await found(redis_list(valkey.url))
    assert verdicts(findings) == {"redis": "ok", "list": "ok"}
    assert of(findings, "list").text == "nodes in the sorted list: 2"


async def test_a_list_that_nobody_filled(valkey: EmbeddedServer) -> None:
    """Redis is well, and the placer is named as the part to look at."""
    findings = await found(redis_list(valkey.url))
    assert verdicts(findings) == {"redis": "ok", "list": "failed"}
    assert "PLIMSOLL_REDIS_URL" in of(findings, "list").remedy


async def test_no_server_a_wrong_password_and_no_url(own_valkey: EmbeddedServer) -> None:
    """Each is one failure with its own cause; a password is never shown."""
    wrong = own_valkey.url.replace("//", "//:a-secret@")
    [one] = await found(redis_list(wrong))
    assert "the user or password is refused" in one.text
    assert one.remedy == "mend it in --redis-url or PLIMSOLL_REDIS_URL"
    await own_valkey.kill()
    [one] = await found(redis_list(own_valkey.url))
    assert (one.verdict, "nothing listens there" in one.text) == (Verdict.FAILED, True)
    [one] = await found(redis_list("http://h"))
    assert one.text.endswith("is no URL of such a server")
    [one] = await found(redis_list(""))
    assert one.verdict is Verdict.SKIPPED


async def test_a_read_only_replica_is_named_with_its_master(own_valkey: EmbeddedServer) -> None:
    """A replica answers readers, and no placer could write there: the finding names the master."""
    async with redis.Redis.from_url(own_valkey.url, protocol=2) as client:
        await client.replicaof("127.0.0.1", 1)
        [one] = await found(redis_list(own_valkey.url))
        assert "read-only replica" in one.text
        assert one.remedy == "name its master, 127.0.0.1:1, in --redis-url or PLIMSOLL_REDIS_URL"
        with pytest.raises(redis.ReadOnlyError) as caught:
            await client.set("a", "b")
    assert "name its master" in cause_of(caught.value, "URL")


async def test_a_server_that_takes_no_writes_is_named_with_its_remedy(own_valkey: EmbeddedServer) -> None:
    """It answers readers; the doctor and the placer say why it takes nothing, and the doctor changes nothing."""
    scores = ScoreList(own_valkey.url, timeout_s=PATIENCE_S)
    async with redis.Redis.from_url(own_valkey.url, protocol=2) as client:
        await client.config_set("maxmemory", "1kb")
        [one] = await found(redis_list(own_valkey.url))
        assert ("it is full, and evicts nothing" in one.text, one.remedy) == (True, "raise its maxmemory")
        with pytest.raises(ScoresAwayError, match=r"it is full, and evicts nothing .*; raise its maxmemory"):
            await scores.fill([])
        assert await client.dbsize() == 0
    await scores.close()
