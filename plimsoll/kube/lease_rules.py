"""The rules of a Lease, as values: when a process may take it, and what it writes then. `lease` carries them out.

No clock is read here. Each process counts by its own clock, from its own readings.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

import msgspec

from plimsoll.kube.models import ObjectMeta
from plimsoll.part.times import rfc3339

RENEWALS: Final = 4
"""Renewals per duration."""
LOOKS: Final = 5
"""Readings by each follower per duration."""
DEADLINE_PART: Final = 0.7
"""The part of the duration for which a renewal is good for the holder itself."""
NOTE: Final = "plimsoll.dev/note"
"""The annotation of a Lease with its holder's note. The number before the note is the Lease's number of transitions:
a note is void once a process that writes no notes has held the Lease."""


ADDRESS: Final = "plimsoll.dev/http"
"""The annotation with the URL at which the holder answers, after the number of transitions as in `NOTE`."""


class Notes(Protocol):
    """Writes the notes of a Lease: what its next holder must know of this one. The methods return at once.

    After an unclear answer the Lease may hold any of the notes since the last that was stored.
    """

    def found(self, note: str | None) -> None:
        """Take the note of the Lease that this process is about to take; None if there is no Lease, or no note."""

    def next(self, version: int) -> str:
        """The note that is about to be written.

        Args:
            version: the resourceVersion of the Lease that is replaced; 0 if there is none.
        """

    def stored(self) -> None:
        """Learn that the Lease holds the note that `next` gave last."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The times of a Lease; all follow from its duration.

    Attributes:
        duration_s: whole seconds, at least 1, for which the Lease is good after each renewal. A dead holder is
            followed by another process after this time and a fifth of it. A holder costs the API server
            `4 / duration_s` writes a second, each follower `5 / duration_s` reads.
    """

    duration_s: int = 1

    @property
    def renew_s(self) -> float:
        """The time between two renewals, in seconds."""
        return self.duration_s / RENEWALS

    @property
    def look_s(self) -> float:
        """The time between two readings by a follower, in seconds."""
        return self.duration_s / LOOKS

    @property
    def deadline_s(self) -> float:
        """The time in seconds after a renewal's beginning from which on the holder counts it as void."""
        return self.duration_s * DEADLINE_PART


class LeaseSpec(msgspec.Struct, frozen=True):
    """The fields of a Lease's `spec` that decide who holds it."""

    holderIdentity: str | None = None  # noqa: N815 - the API's names
    leaseDurationSeconds: int | None = None  # noqa: N815
    leaseTransitions: int | None = None  # noqa: N815


class StoredLease(msgspec.Struct, frozen=True):
    """A Lease as the API server stores it."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()

    @property
    def holder(self) -> str:
        """The identity of the holder; empty if nobody holds the Lease."""
        return self.spec.holderIdentity or ""

    @property
    def transitions(self) -> int:
        """How often the Lease went to another process."""
        return self.spec.leaseTransitions or 0

    @property
    def note(self) -> str | None:
        """The note of the last holder, or None if it left none."""
        return self._of_holder(NOTE)

    @property
    def address(self) -> str | None:
        """The URL at which the holder answers, or None if it gave none."""
        return self._of_holder(ADDRESS) or None

    def _of_holder(self, annotation: str) -> str | None:
        transitions, _, text = (self.metadata.annotations or {}).get(annotation, "").partition(" ")
        return text if transitions == str(self.transitions) else None


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A Lease and the time for which this process has seen it in this version.

    Attributes:
        record: the Lease; None if there was none.
        since_s: this process's clock when it first read this version, in seconds.
    """

    record: StoredLease | None
    since_s: float


def seen(before: SeenLease | None, record: StoredLease | None, now_s: float) -> SeenLease:
    """The next `SeenLease` after a reading that ended at `now_s`."""
    unchanged = before is not None and _version(before.record) == _version(record)
    return SeenLease(record, before.since_s if before is not None and unchanged else now_s)


def free_s(known: SeenLease, identity: str, timing: LeaseTiming) -> float:
    """The time on this process's clock from which on it may take the Lease, if that stays in this version.

    Args:
        known: the Lease.
        identity: this process. It may take its own Lease at any time: the answer to an earlier change was lost.
        timing: its duration counts where the Lease names none.
    """
    if known.record is None:  # somebody may have deleted it just now
        return known.since_s + timing.duration_s
    if known.record.holder in ("", identity):
        return known.since_s
    return known.since_s + (known.record.spec.leaseDurationSeconds or timing.duration_s)


def taken(record: StoredLease | None, identity: str, timing: LeaseTiming, now: datetime) -> dict[str, object]:
    """The `spec` with which this process takes or renews a Lease; None stands for a Lease that does not exist.

    Args:
        record: the Lease that is replaced.
        identity: this process.
        timing: its duration is written.
        now: the wall clock, for people only.
    """
    spec: dict[str, object] = {
        "holderIdentity": identity,
        "leaseDurationSeconds": timing.duration_s,
        "renewTime": rfc3339(now),
    }
    if record is None or record.holder != identity:
        spec["acquireTime"] = rfc3339(now)
        spec["leaseTransitions"] = 0 if record is None else record.transitions + 1
    return spec


def _version(record: StoredLease | None) -> tuple[str, str] | None:
    return (record.metadata.uid, record.metadata.resourceVersion) if record is not None else None
