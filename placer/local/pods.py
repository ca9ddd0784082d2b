"""The local front end's pods: one row each, from arrival to end, and listeners to changes.

What always holds: a uid is never used again. Ended pods are kept for people to read; the oldest are dropped first.
"""

import uuid
from collections.abc import Callable
from typing import Final

import msgspec

from plimsoll.ids import PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.part.errors import InputError
from plimsoll.placer_api.http import PodRow

ENDED_KEPT: Final = 1000
"""Ended pods that are kept; some 500 KiB."""

Listener = Callable[[PodRow], None]


class PodTable:
    """The rows of pods by uid, in order of arrival. One event loop owns the table."""

    def __init__(self) -> None:
        self._rows: dict[PodUid, PodRow] = {}
        self._manifests: dict[PodUid, Pod] = {}
        self._listeners: list[Listener] = []

    def rows(self) -> tuple[PodRow, ...]:
        """Every pod, in order of arrival."""
        return tuple(self._rows.values())

    def get(self, uid: PodUid) -> PodRow | None:
        """The row of a pod, or None."""
        return self._rows.get(uid)

    def find(self, namespace: str, name: str) -> PodRow | None:
        """The pod of that name that has not ended, or None."""
        rows = (row for row in self._rows.values() if row.phase not in TERMINAL_PHASES)
        return next((row for row in rows if (row.namespace, row.name) == (namespace, name)), None)

    def last(self, namespace: str, name: str) -> PodRow | None:
        """The pod of that name that has not ended, else the one that came last; None for an unknown name."""
        named = (
            row for row in reversed(self._rows.values()) if (row.namespace, row.name) == (namespace, name)
        )
        return self.find(namespace, name) or next(named, None)

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each changed row, on the event loop; it must not block or raise.

        Returns:
            A function that ends the calls.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def add(self, pod: Pod) -> PodRow:
        """Add a waiting pod; for the same manifest as a pod that has not ended, return that pod's row.

        Raises:
            InputError: another pod of that name has not ended.
        """
        for uid, row in self._rows.items():
            same_name = (row.namespace, row.name) == (pod.metadata.namespace, pod.metadata.name)
            if same_name and row.phase not in TERMINAL_PHASES:
                if self._manifests.get(uid) == pod:
                    return row
                name = f"{row.namespace}/{row.name}"
                remedy = "end that one first, or choose another name"
                raise InputError("metadata.name", name, f"is taken by a pod that is {row.phase}", remedy)
        row = PodRow(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=PodUid(str(uuid.uuid4())),
            phase="Pending",
        )
        self._manifests[row.uid] = pod
        self.put(row)
        return row

    def put(self, row: PodRow) -> None:
        """Keep a row, and call the listeners if it is new or changed."""
        if self._rows.get(row.uid) == row:
            return
        self._rows[row.uid] = row
        if row.phase in TERMINAL_PHASES:
            self._manifests.pop(row.uid, None)
            self._drop_oldest_ended()
        for listener in tuple(self._listeners):
            listener(row)

    def change(self, uid: PodUid, **fields: object) -> PodRow:
        """Change fields of a row, and call the listeners."""
        row = msgspec.structs.replace(self._rows[uid], **fields)
        self.put(row)
        return row

    def _drop_oldest_ended(self) -> None:
        ended = [uid for uid, row in self._rows.items() if row.phase in TERMINAL_PHASES]
        for uid in ended[: max(len(ended) - ENDED_KEPT, 0)]:
            del self._rows[uid]
