"""The latest report of every node, in memory, for decisions. Redis keeps the order of nodes, the view their reports.

What always holds: a node's report is replaced only by a newer one, by (`epoch`, `seq`), so replays and late events
change nothing. A node that the intake calls silent stays in the view and is no candidate; only a newer report ends
its silence. One event loop owns the view.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from placer.core.reasons import Reason
from placer.core.view import NodeView, node_view
from plimsoll.events import NodeState
from plimsoll.ids import NodeName

Listener = Callable[[NodeState], None]

SilenceListener = Callable[[NodeName, bool], None]
"""Takes a node, and whether it is silent from now on (True) or reports again (False)."""


def newest_of_each(states: Iterable[NodeState]) -> tuple[NodeState, ...]:
    """The newest report of each node among these, in no particular order of nodes."""
    newest: dict[NodeName, NodeState] = {}
    for state in states:
        if state.node not in newest or newest[state.node].order < state.order:
            newest[state.node] = state
    return tuple(newest.values())


class ReportView(Mapping[NodeName, NodeState]):
    """Node → its latest report."""

    def __init__(self) -> None:
        self._states: dict[NodeName, NodeState] = {}
        self._views: dict[NodeName, NodeView] = {}
        self._silent: set[NodeName] = set()
        self._silence_listeners: list[SilenceListener] = []
        self._listeners: dict[int, Listener] = {}
        self._listeners_made = 0

    def apply(self, state: NodeState) -> bool:
        """Keep a report and call the listeners, unless one as new is there. Returns whether the report was kept."""
        known = self._states.get(state.node)
        if known is not None and known.order >= state.order:
            return False
        self._states[state.node] = state
        self._views.pop(state.node, None)
        self._set_silent(state.node, silent=False)
        for listener in tuple(self._listeners.values()):
            listener(state)
        return True

    def forget(self, node: NodeName) -> None:
        """Drop a node that left the cluster; a later report brings it back."""
        self._states.pop(node, None)
        self._views.pop(node, None)
        self._set_silent(node, silent=False)

    @property
    def silent(self) -> AbstractSet[NodeName]:
        """The nodes that have been silent for too long: no candidates, until they report again."""
        return self._silent

    def set_silent(self, node: NodeName) -> None:
        """Count a node as silent until it reports again. An unknown node is no error."""
        if node in self._states:
            self._set_silent(node, silent=True)

    def on_silence(self, listener: SilenceListener) -> None:
        """Call `listener` whenever a node becomes silent or is so no longer; it must not block or raise.

        It is called before the listeners of `on_report` get the report that ends the silence, and also when a silent
        node is forgotten.
        """
        self._silence_listeners.append(listener)

    def candidates(self, nodes: Iterable[NodeName]) -> tuple[list[NodeView], dict[NodeName, tuple[str, ...]]]:
        """The views of these nodes, in their order, and a reason for each silent one; unknown nodes are left out."""
        views: list[NodeView] = []
        reasons: dict[NodeName, tuple[str, ...]] = {}
        for node in nodes:
            view = self.view(node)
            if node in self._silent:
                reasons[node] = (Reason.SILENT.value,)
            elif view is not None:
                views.append(view)
        return views, reasons

    def view(self, node: NodeName) -> NodeView | None:
        """A node as decisions read it, or None before its first report."""
        if node not in self._views and node in self._states:
            self._views[node] = node_view(self._states[node])
        return self._views.get(node)

    def on_report(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each report that is kept, on the event loop; it must not block or raise.

        Returns:
            A function that ends the calls.
        """
        self._listeners_made += 1
        key = self._listeners_made
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def _set_silent(self, node: NodeName, *, silent: bool) -> None:
        if silent == (node in self._silent):
            return
        if silent:
            self._silent.add(node)
        else:
            self._silent.remove(node)
        for listener in self._silence_listeners:
            listener(node, silent)

    def __getitem__(self, node: NodeName) -> NodeState:
        return self._states[node]

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)
