"""A sorted list of keys, each with a size: the greatest key whose size suffices is found without reading the others.

The keys lie in chunks. Each chunk knows its largest size, so a search passes over a chunk without a sufficient size
in one step. A search, an addition and a removal read some hundred keys at most, and one number per chunk.
"""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

B = TypeVar("B", bound=Hashable)
K = TypeVar("K", bound=tuple[float | str, ...])

CHUNK: Final = 512
"""The number of keys at which a chunk is split: 320 chunks hold the GPUs of 20 000 nodes."""


class ReadCount:
    """The number of keys and chunks that searches have read."""

    def __init__(self) -> None:
        self.keys = 0
        self.chunks = 0


class Ranking(Generic[K]):
    """The list. No key may be added twice."""

    def __init__(self, reads: ReadCount) -> None:
        self._reads = reads
        self._keys: list[list[K]] = []
        self._sizes: list[list[int]] = []
        self._greatest: list[K] = []  # of each chunk
        self._largest: list[int] = []  # size in each chunk

    def __len__(self) -> int:
        return sum(map(len, self._keys))

    def add(self, key: K, size: int = 0) -> None:
        """Add a key."""
        if not self._keys:
            self._keys, self._sizes, self._greatest, self._largest = [[key]], [[size]], [key], [size]
            return
        chunk = min(bisect_left(self._greatest, key), len(self._keys) - 1)
        keys, sizes = self._keys[chunk], self._sizes[chunk]
        place = bisect_left(keys, key)
        keys.insert(place, key)
        sizes.insert(place, size)
        self._greatest[chunk] = keys[-1]
        self._largest[chunk] = max(size, self._largest[chunk])
        if len(keys) > CHUNK:
            self._replace(chunk, chunk + 1, (keys[: CHUNK // 2], keys[CHUNK // 2 :]), sizes)

    def remove(self, key: K) -> None:
        """Remove a key that was added."""
        chunk = bisect_left(self._greatest, key)
        keys, sizes = self._keys[chunk], self._sizes[chunk]
        place = bisect_left(keys, key)
        assert keys[place] == key, f"{key} is not in the ranking"
        del keys[place]
        size = sizes.pop(place)
        if not keys:
            self._replace(chunk, chunk + 1, (), [])
            return
        self._greatest[chunk] = keys[-1]
        if size == self._largest[chunk] and size not in sizes:
            self._largest[chunk] = max(sizes)
        if len(keys) < CHUNK // 8:
            self._join(chunk)

    def greatest(self) -> K | None:
        """The greatest key, or None."""
        return self._greatest[-1] if self._greatest else None

    def __iter__(self) -> Iterator[K]:
        """All keys, the least first. Do not change the ranking while you iterate."""
        return (key for keys in self._keys for key in keys)

    def descending(self, size: int = 0, admits: Callable[[K], bool] | None = None) -> Iterator[K]:
        """The keys with at least this size that are admitted, the greatest first.

        Do not change the ranking while you iterate.
        """
        reads = self._reads
        for chunk in range(len(self._keys) - 1, -1, -1):
            reads.chunks += 1
            if self._largest[chunk] < size:
                continue
            keys, sizes = self._keys[chunk], self._sizes[chunk]
            for place in range(len(keys) - 1, -1, -1):
                reads.keys += 1
                if sizes[place] >= size and (admits is None or admits(keys[place])):
                    yield keys[place]

    def _join(self, chunk: int) -> None:
        """Join a small chunk with its neighbour, so that chunks do not crumble."""
        first = max(chunk - 1, 0)
        if first + 1 >= len(self._keys):
            return
        keys = self._keys[first] + self._keys[first + 1]
        if len(keys) <= CHUNK * 3 // 4:
            self._replace(first, first + 2, (keys,), self._sizes[first] + self._sizes[first + 1])

    def _replace(self, start: int, end: int, chunks: tuple[list[K], ...], sizes: list[int]) -> None:
        split: list[list[int]] = []
        for keys in chunks:
            split.append(sizes[: len(keys)])
            sizes = sizes[len(keys) :]
        self._keys[start:end] = chunks
        self._sizes[start:end] = split
        self._greatest[start:end] = [keys[-1] for keys in chunks]
        self._largest[start:end] = [max(one) for one in split]


class Rankings(Generic[B, K]):
    """Rankings apart by bucket, so that a search can leave out whole buckets."""

    def __init__(self, reads: ReadCount) -> None:
        self._reads = reads
        self._buckets: dict[B, Ranking[K]] = {}

    def add(self, bucket: B, key: K, size: int) -> None:
        """Add a key to a bucket."""
        if bucket not in self._buckets:
            self._buckets[bucket] = Ranking(self._reads)
        self._buckets[bucket].add(key, size)

    def remove(self, bucket: B, key: K) -> None:
        """Remove a key that was added to this bucket."""
        ranking = self._buckets[bucket]
        ranking.remove(key)
        if ranking.greatest() is None:
            del self._buckets[bucket]

    @property
    def is_empty(self) -> bool:
        """Whether no bucket has a key."""
        return not self._buckets

    def descending(
        self, size: int, admits: Callable[[B], bool], admits_key: Callable[[K], bool] | None = None
    ) -> Iterator[K]:
        """The keys with at least this size in the buckets that are admitted, the greatest first.

        Do not change the rankings while you iterate.
        """
        found = [
            ranking.descending(size, admits_key)
            for bucket, ranking in self._buckets.items()
            if admits(bucket)
        ]
        return found[0] if len(found) == 1 else heapq.merge(*found, reverse=True)
