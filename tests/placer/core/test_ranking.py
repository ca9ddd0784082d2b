"""The ranking with sizes is a sorted list, whatever was added and removed, and reads little of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core import ranking
from placer.core.ranking import Ranking, ReadCount

Key = tuple[float, str]
keys = st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from("abcdefghijklmnop"))
steps = st.lists(st.tuples(keys, st.integers(0, 9)), max_size=150)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that split and join after a few keys."""
    monkeypatch.setattr(ranking, "CHUNK", 8)


@given(steps, st.integers(0, 10))
def test_keys_of_a_size_come_in_order(then: list[tuple[Key, int]], size: int) -> None:
    """A key that is named again is removed; the others come in falling order, those that are too small left out."""
    made: Ranking[Key] = Ranking(ReadCount())
    kept: dict[Key, int] = {}
    for key, given_size in then:
        if key in kept:
            made.remove(key)
            del kept[key]
        else:
            made.add(key, given_size)
            kept[key] = given_size
        large = sorted((one for one, found in kept.items() if found >= size), reverse=True)
        assert list(made.descending(size)) == large
        assert list(made) == sorted(kept)
        assert made.greatest() == max(kept, default=None)


def test_a_search_passes_over_chunks_without_a_sufficient_size() -> None:
    """Among 1000 small keys, one large key is found without reading the small ones of other chunks."""
    work = ReadCount()
    made: Ranking[Key] = Ranking(work)
    for number in range(1000):
        made.add((float(number), "small"), 1)
    made.add((10.0, "large"), 5)
    assert next(made.descending(5)) == (10.0, "large")
    assert work.keys <= 8
    assert list(made.descending(6)) == []
    made.remove((10.0, "large"))
    read = work.keys
    assert list(made.descending(2)) == []
    assert work.keys == read
