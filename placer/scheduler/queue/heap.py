"""A heap of which items go out of date wherever they stand: a pod is bound, deleted, or gets another rank.

What always holds: the heap has at most twice as many items as were up to date when it was last tidied, and `SPARE`
more. So it does not grow with the number of pods that were, even where nobody takes its head, as in a placer that
follows.
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")

SPARE: Final = 64
"""Items beyond which a heap is tidied: a small one is not worth the work."""


class Heap(Generic[T]):
    """Items, the least first. Pure.

    Args:
        is_current: whether an item is up to date. One that is so again must be pushed again.
    """

    def __init__(self, is_current: Callable[[T], bool]) -> None:
        self._is_current = is_current
        self._items: list[T] = []
        self._most = SPARE

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        """Add an item; the same item once more does no harm."""
        heapq.heappush(self._items, item)  # type: ignore[type-var]  # all are tuples with an order
        if len(self._items) > self._most:
            self._items = list(dict.fromkeys(filter(self._is_current, self._items)))
            heapq.heapify(self._items)  # type: ignore[type-var]  # likewise
            self._most = 2 * len(self._items) + SPARE

    def head(self) -> T | None:
        """The least item that is up to date, which stays; None if there is none."""
        while self._items:
            if self._is_current(self._items[0]):
                return self._items[0]
            heapq.heappop(self._items)  # type: ignore[type-var]  # likewise
        return None

    def pop(self) -> T:
        """Take the item that `head` gives; there must be one."""
        self.head()
        return heapq.heappop(self._items)  # type: ignore[type-var]  # likewise

    def in_order(self) -> Iterator[T]:
        """The items that are up to date, the least first; the heap must not change meanwhile."""
        edge = [(self._items[0], 0)] if self._items else []
        last: T | None = None
        while edge:
            item, at = heapq.heappop(edge)
            if item != last and self._is_current(item):
                yield item
                last = item
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(self._items):
                    heapq.heappush(edge, (self._items[child], child))
