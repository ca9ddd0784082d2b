"""The GPUs of a node for one container, and the worth of any such choice as a score."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from placer.core.ledger import Ledger
from placer.core.owners import has_controller
from placer.core.policy_context import Request, Rooms
from placer.core.room import Room
from placer.core.topology.links import all_equal
from placer.core.topology.sets import Shape, best_set, shape_of
from placer.core.view import NodeView
from plimsoll.ids import GpuUuid

FRAGMENT: Final = 0.5
"""The least score of a GPU in use; an empty GPU has at most this much. So fragments come first, on whatever node."""


class Links(NamedTuple):
    """The links between some GPUs of a node.

    Attributes:
        places: the place of each GPU in the shape.
        shape: the costs.
        is_known: False where all links count as equal, because the node has not named them.
    """

    places: Mapping[GpuUuid, int]
    shape: Shape
    is_known: bool


def links_of(node: NodeView, gpus: Collection[GpuUuid]) -> Links:
    """The links between these GPUs of a node."""
    if node.hardware is not None and node.hardware.knows(gpus):
        return Links(node.hardware.places, node.hardware.shape, is_known=True)
    places = {gpu: place for place, gpu in enumerate(sorted(gpus))}
    return Links(places, _even(len(places)), is_known=False)


@cache
def _even(gpus: int) -> Shape:
    return shape_of(all_equal(gpus))


def empty_among(links: Links, rooms: Rooms, taken: Collection[GpuUuid] = ()) -> frozenset[int]:
    """The places of the GPUs that are empty and not taken."""
    return frozenset(links.places[gpu] for gpu, room in rooms.items() if room.is_empty and gpu not in taken)


def chosen(links: Links, empty: frozenset[int], fitting: Iterable[Room], count: int) -> Sequence[Room]:
    """The best GPUs for a container.

    Args:
        links: those of the node's GPUs.
        empty: see `empty_among`.
        fitting: the GPUs that fit, `count` or more.
        count: the number of GPUs that the container asks for.
    """
    preferred = sorted(fitting, key=lambda room: (room.is_empty, -packed(room)))
    at = {links.places[room.gpu.uuid]: room for room in preferred}
    return [at[place] for place in best_set(links.shape, tuple(at), count, empty)]


def worth(links: Links, empty: frozenset[int], rooms: Sequence[Room]) -> float:
    """The score of GPUs for one container, 0 to 1: how near several are, and how well a single one is chosen."""
    places = tuple(links.places[room.gpu.uuid] for room in rooms)
    if len(rooms) > 1:
        return links.shape.nearness(places)
    (room,) = rooms
    if not room.is_empty:
        return FRAGMENT + (1 - FRAGMENT) * packed(room)
    return FRAGMENT * links.shape.apartness(places[0], empty)


def packed(room: Room) -> float:
    """The part of a GPU that is taken, 0 to 1: the mean of memory and compute time."""
    free_share = min(max(room.free_share_pct, 0), 100) / 100
    return 1 - (room.free_ratio + free_share) / 2


def owner_models(request: Request, ledger: Ledger) -> frozenset[str]:
    """The models on which a pod must stay, because its controller's other pods are there; empty: any.

    Pods without a controller that have one image are no service, so nothing holds them together. A pod that names
    models has chosen.
    """
    if request.demand.gpu_models or request.owner is None or not has_controller(request.owner):
        return frozenset()
    return ledger.owner_models.of(request.owner, request.pod)
