"""The log of changed nodes tells each reader what changed since it last read."""

import pytest

from placer.core import changes
from placer.core.changes import Changes
from plimsoll.ids import NodeName


def test_a_reader_sees_each_change_since_its_last_reading_once() -> None:
    """Nodes that changed after the serial come once each, the last change first."""
    log = Changes()
    for node in "abcab":
        log.note(NodeName(node))
    assert list(log.since(0)) == ["b", "a", "c"]
    assert list(log.since(3)) == ["b", "a"]
    assert list(log.since(log.serial)) == []


def test_a_reader_is_told_when_the_log_has_forgotten_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log stays bounded, and a reader that is too far behind can see that it is."""
    monkeypatch.setattr(changes, "KEPT", 5)
    log = Changes()
    for number in range(100):
        log.note(NodeName(f"n{number}"))
    assert log.reaches_back_to(log.serial)
    assert not log.reaches_back_to(0)
    kept = list(log.since(0))
    assert 5 <= len(kept) <= 10
    assert log.reaches_back_to(log.serial - 5)
    assert len(list(log.since(log.serial - 5))) == 5
