"""The placer's settings for several NATS servers and for Redis by sentinels."""

import pytest

from placer.settings import load
from plimsoll.part.errors import InputError

BY_SENTINEL = "redis+sentinel://a,b,c/plimsoll/0"


def test_several_servers_can_be_given() -> None:
    """The stream's replicas and the sentinels of Redis are read; without a setting the stream has one replica."""
    given = load(
        {
            "PLIMSOLL_NATS_URL": "nats://a:4222,nats://b:4222,nats://c:4222",
            "PLIMSOLL_STREAM_REPLICAS": "3",
            "PLIMSOLL_REDIS_URL": BY_SENTINEL,
        }
    )
    assert (given.stream_replicas, given.redis_url) == (3, BY_SENTINEL)
    assert load({}).stream_replicas == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STREAM_REPLICAS", "2"),
        ("STREAM_REPLICAS", "all"),
        ("REDIS_URL", "redis+sentinel://a,b,c"),
        ("NATS_URL", "nats://a,b"),
    ],
)
def test_servers_that_cannot_work_are_refused_by_name(variable: str, value: str) -> None:
    """A number of replicas or a URL that cannot work is refused with an error that names the variable."""
    with pytest.raises(InputError, match=f"PLIMSOLL_{variable}"):
        load({f"PLIMSOLL_{variable}": value})
