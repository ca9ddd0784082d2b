"""The CPU that the pods of each node leave. Policies weigh it, since a GPU without CPU beside it is of no use."""

from collections.abc import Callable

from plimsoll.ids import NodeName


class SpareCpu:
    """The spare CPU of nodes, as their front ends note it. Not thread-safe: one event loop owns it."""

    def __init__(self) -> None:
        self._milli: dict[NodeName, int] = {}
        self._listeners: list[Callable[[NodeName], None]] = []

    def on_change(self, listener: Callable[[NodeName], None]) -> None:
        """Call `listener` with each node whose spare CPU changed; it must not block or raise."""
        self._listeners.append(listener)

    def note(self, node: NodeName, milli: int | None) -> None:
        """Note the spare CPU of a node, in thousandths; None: not known any more."""
        if self._milli.get(node) == milli:
            return
        if milli is None:
            self._milli.pop(node, None)
        else:
            self._milli[node] = milli
        for listener in self._listeners:
            listener(node)

    def on(self, node: NodeName) -> int | None:
        """The spare CPU of a node, in thousandths; None: not known, so it counts as enough for every pod."""
        return self._milli.get(node)

    def suffices_for(self, milli: int) -> Callable[[NodeName], bool]:
        """Says whether a node has this much CPU to spare. A node whose CPU is not known counts as having it."""
        spare = self._milli
        return lambda node: spare.get(node, milli) >= milli
