"""The interface of placement policies. A policy picks the best among the places that fit.

A policy only orders places. Whether a container fits is decided by `placer.core.room` first, and a policy may object
to more. A policy is a value: it keeps no state, and reads nothing but its arguments.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from placer.core.gpu_index import GpuIndex
from placer.core.index import Index, Surroundings
from placer.core.ledger import Ledger
from placer.core.policy_context import AssignedGpu, Context, Request
from placer.core.room import Room
from plimsoll.demand import ContainerDemand
from plimsoll.part.errors import SHOWN_CHARS, PlimsollError


def one_line(text: str) -> str:
    """A text of a package as people may see it: one line without control characters, of `SHOWN_CHARS` at most."""
    start = " ".join(text[: 4 * SHOWN_CHARS].split())[:SHOWN_CHARS]
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in start)


class PolicyError(PlimsollError):
    """A policy raised an error or gave an impossible answer. The pod that names the policy is refused for that."""

    def __init__(self, name: str, problem: str) -> None:
        shown = one_line(problem)
        remedy = "mend its package and start the placer again, or choose another policy"
        super().__init__(f"policy {name} failed: {shown}; {remedy}")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The worth of a place for a pod, and its reasons.

    Attributes:
        score: higher is better. Only scores of one policy are compared. A pod's wishes decide among places whose
            scores differ by less than a twentieth, so 0 to 1 is the range to use.
        sub_scores: the named parts of the score, for people: by container and GPU (`<container>/<uuid>`), and under
            other keys, without a slash, those of the node.
        note: more about the place, for people, such as what is not known of the node; empty for nothing.
    """

    score: float
    sub_scores: Mapping[str, Mapping[str, float]]
    note: str = ""


class Policy(ABC):
    """The order among the places that fit. `rank`, `score` and `sub_scores` suffice for one that judges GPU by GPU.

    They do not see the node. A policy that compares nodes overrides `judge` and `index`.

    Attributes:
        name: the policy's name in `plimsoll.dev/policy`.
    """

    __slots__ = ()

    name: str

    @abstractmethod
    def rank(self, room: Room) -> float:
        """The score of this GPU for the container that it suits best: no score here is higher.

        A plan may take from the room, and its score then falls.
        """

    @abstractmethod
    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:
        """The named parts of the score of this GPU, for people; higher is better."""

    @abstractmethod
    def score(self, room: Room, demand: ContainerDemand) -> float:
        """The score of this GPU for this container; higher is better."""

    def objection(self, context: Context, room: Room, demand: ContainerDemand) -> str | None:  # noqa: ARG002 - for overriding
        """The reason, in few words, why a GPU must not be used although the container fits on it; None: it may be."""
        return None

    def state(self, request: Request, ledger: Ledger) -> Hashable:  # noqa: ARG002 - for overriding
        """All but the node on which objections to this pod depend. Equal values mean equal objections."""
        return None

    def arrange(self, context: Context, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:  # noqa: ARG002 - for overriding
        """The GPUs for a container, the best first; the first `demand.gpus` of them are taken.

        Args:
            context: the node, the pod, and the GPUs that its other containers have been given so far.
            demand: the container's demand.
            fitting: the GPUs that fit and to which the policy has no objection, at least `demand.gpus`, with the room
                that the pod's other containers leave. The answer holds some of them, and at least this many of them.
        """
        return sorted(fitting, key=lambda room: -self.score(room, demand))

    def judge(self, context: Context, assigned: Sequence[AssignedGpu]) -> Judgement:  # noqa: ARG002 - for overriding
        """Judge a place for the whole pod; the score is never above the bound that the index gives for the node.

        Args:
            context: the node with the room before the pod.
            assigned: a GPU for each container, as often as the container asks for GPUs, in the pod's order of
                containers. None for a pod that asks for no GPU.
        """
        return Judgement(
            score=min((self.score(one.room, one.demand) for one in assigned), default=0.0),
            sub_scores={
                f"{one.demand.container}/{one.grant.gpu}": self.sub_scores(one.room, one.demand)
                for one in assigned
            },
        )

    def index(self, around: Surroundings) -> Index:
        """A new index, in which searches find nodes for this policy."""
        return GpuIndex(self.rank, around)
