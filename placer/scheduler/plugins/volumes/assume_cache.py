"""Objects as the scheduler assumes them, before the API server knows.

What always holds: an assumption stands only beside the version of the object for which it was made. Each later
version that a watch shows replaces it. Follows `pkg/scheduler/util/assumecache` of Kubernetes 1.36.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class AssumeCache(Generic[K, V]):
    """Objects of one kind, as assumed.

    Args:
        on_change: called after a change with the key, and the object before and now; None for no object.
    """

    def __init__(self, on_change: Callable[[K, V | None, V | None], None]) -> None:
        self._on_change = on_change
        self._latest: dict[K, V] = {}
        self._shown: dict[K, V] = {}  # as the watch showed them, where another form is assumed

    def __contains__(self, key: K) -> bool:
        return key in self._latest

    def get(self, key: K | None) -> V | None:
        """An object as assumed."""
        return None if key is None else self._latest.get(key)

    def shown(self, key: K) -> V | None:
        """An object as the watch showed it last, without assumptions."""
        return self._shown.get(key) or self._latest.get(key)

    def put(self, key: K, shown: V | None) -> None:
        """Take an object as a watch shows it; None for one that is gone."""
        self._shown.pop(key, None)
        self._set(key, shown)

    def assume(self, key: K, assumed: V) -> None:
        """Assume another form of an object."""
        self._shown.setdefault(key, self._latest[key])
        self._set(key, assumed)

    def restore(self, key: K, assumed: V) -> None:
        """Drop an assumption, unless a later version of the object has replaced it."""
        if key in self._shown and self._latest.get(key) is assumed:
            self.put(key, self._shown[key])

    def _set(self, key: K, now: V | None) -> None:
        before = self._latest.pop(key, None)
        if now is not None:
            self._latest[key] = now
        self._on_change(key, before, now)
