"""The record of a pod, as `record.json` keeps it over restarts of the broker."""

from msgspec import Struct

from plimsoll.broker.wire import Register


class PodRecord(Struct, frozen=True, kw_only=True):
    """A registered pod.

    Attributes:
        pod: its registration, as last accepted.
        leaving: the pod was unregistered, and the broker waits for its last process to end.
    """

    pod: Register
    leaving: bool = False
