"""The latest report of every node, and the latest of its hardware, in memory, for decisions.

What always holds: a node's report is replaced only by a newer one, by (`epoch`, `seq`), so replays and late events
change nothing. A node that the intake calls silent stays in the view and is no candidate; only a newer report ends
its silence. The hardware of a node has no order but its time: a monitor publishes it once an hour and after a change.
A single event loop owns the view.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime

from placer.core.topology.hardware import Hardware
from placer.core.view import NodeView, node_view
from plimsoll.events import NodeState
from plimsoll.ids import NodeName

Listener = Callable[[NodeState], None]
ChangeListener = Callable[[NodeName], None]


class ReportView(Mapping[NodeName, NodeState]):
    """Node → its latest report."""

    def __init__(self) -> None:
        self._states: dict[NodeName, NodeState] = {}
        self._views: dict[NodeName, NodeView] = {}
        self._silent: set[NodeName] = set()
        self._hardware: dict[NodeName, tuple[datetime, Hardware]] = {}
        self._listeners: dict[int, Listener] = {}
        self._listeners_made = 0
        self._replaced: NodeView | None = None
        self._change_listeners: list[ChangeListener] = []

    def apply(self, state: NodeState) -> bool:
        """Keep a report and call the listeners, unless the last is as new. Returns whether the report was kept."""
        known = self._states.get(state.node)
        if state.is_omitted:
            return False
        if known is not None and known.order >= state.order:
            return False
        self._replaced = self.view(state.node)
        self._states[state.node] = state
        self._silent.discard(state.node)
        self._change(state.node)
        for listener in tuple(self._listeners.values()):
            listener(state)
        return True

    def apply_hardware(self, node: NodeName, time: datetime, hardware: Hardware) -> bool:
        """Keep a node's hardware, unless the kept one is later. Returns whether it was kept.

        Args:
            node: a node with or without a report.
            time: when the node's monitor read the hardware, by the node's clock.
            hardware: what it read.
        """
        known = self._hardware.get(node)
        if known is not None and known[0] > time:
            return False
        self._hardware[node] = time, hardware
        if known is None or known[1] != hardware:
            self._change(node)
        return True

    def forget(self, node: NodeName) -> None:
        """Drop a node that left the cluster; a later report brings it back."""
        self._silent.discard(node)
        self._hardware.pop(node, None)
        if self._states.pop(node, None) is not None:
            self._change(node)

    @property
    def silent(self) -> AbstractSet[NodeName]:
        """The nodes that have been silent for too long: no candidates, until they report again."""
        return self._silent

    def states(self) -> tuple[NodeState, ...]:
        """All reports, copied in one step, so that another thread may ask too."""
        return tuple(self._states.values())

    def set_silent(self, node: NodeName) -> None:
        """Count a node as silent until it reports again. An unknown node is no error."""
        if node in self._states:
            self._silent.add(node)
            self._change(node)

    def on_change(self, listener: ChangeListener) -> None:
        """Call `listener` with each node whose report changed, or that fell silent; it must not block or raise."""
        self._change_listeners.append(listener)

    def view(self, node: NodeName) -> NodeView | None:
        """A node as decisions read it, or None before its first report."""
        if node not in self._views and node in self._states:
            known = self._hardware.get(node)
            self._views[node] = node_view(
                self._states[node], silent=node in self._silent, hardware=known[1] if known else None
            )
        return self._views.get(node)

    @property
    def replaced(self) -> NodeView | None:
        """For listeners: the node before the report that they are called with; None if the node had no report."""
        return self._replaced

    def on_report(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each report that is kept, on the event loop; it must not block or raise.

        Returns:
            A function that ends the calls.
        """
        self._listeners_made += 1
        key = self._listeners_made
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def _change(self, node: NodeName) -> None:
        self._views.pop(node, None)
        for listener in self._change_listeners:
            listener(node)

    def __getitem__(self, node: NodeName) -> NodeState:
        return self._states[node]

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)
