"""The errors of the extender, by what kube-scheduler does next: try the pod again soon, or ask another placer."""

from plimsoll.part.errors import PlimsollError


class UnavailableError(PlimsollError):
    """This placer cannot answer now: it does not lead, has not read everything yet, or the API server is away."""


class NotBoundError(PlimsollError):
    """The pod was not bound by this request; kube-scheduler schedules it again."""


class UndecidedError(NotBoundError):
    """The result of the bind is not known yet. The pod keeps its room until it is."""
