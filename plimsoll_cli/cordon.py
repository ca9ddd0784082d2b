"""`plimsoll cordon` and `uncordon`: a GPU that takes no new pods, by an annotation on its node.

The API server authenticates and authorises the caller, by the caller's own kubeconfig. What always holds: a GPU is
named without doubt before anything is written, and a change of the annotation that somebody else made meanwhile is
kept.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from plimsoll.cordons import CORDONED_GPUS, cordon_value, cordoned_gpus
from plimsoll.kube.client import KubeClient, Sent
from plimsoll.kube.models import Node
from plimsoll.kube.transport import ApiError, ConflictError, NotFoundError, PatchKind, RefusedError
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.placer_api.http import NodeRow
from plimsoll_cli.asking import Where, asking
from plimsoll_cli.cluster import Cluster, client_of
from plimsoll_cli.doctor.finding import listed
from plimsoll_cli.gpus import nodes_of

ATTEMPTS: Final = 10
"""The most writes of one change, where others change the node at the same time."""

SEEN_S: Final = 10.0
"""The longest time until the placer heeds the annotation. It takes milliseconds, unless the API server is away."""

LOOK_S: Final = 0.2

RIGHTS: Final = "the account needs `get` and `patch` on nodes: see deploy/cordon-role.yaml"


class NotCordonedError(PlimsollError):
    """The cluster did not do as asked."""


@dataclass(frozen=True, slots=True)
class Target:
    """The GPU that the user named.

    Attributes:
        node: its node.
        uuid: a card's, or a MIG instance's.
        members: the UUIDs of the instances of a card, and its own.
        by_card: the card that is cordoned, and the instance `uuid` with it.
    """

    node: str
    uuid: str
    members: frozenset[str]
    by_card: str | None = None

    def __str__(self) -> str:
        return f"{self.node}: {self.uuid}"


def target_of(name: str, nodes: Iterable[NodeRow]) -> Target:
    """The GPU with a UUID, the unique beginning of one, or the place `node/index`.

    A UUID that is cordoned and belongs to no GPU any more can be named too, by the node that has the annotation.

    Raises:
        InputError: no GPU is named so, or several are.
    """
    found = {target.uuid + target.node: target for node in nodes for target in _targets(node, name)}
    exact = [target for target in found.values() if target.uuid == name]
    match exact or [*found.values()]:
        case [target]:
            return target
        case []:
            raise InputError("GPU", name, "is no GPU of a node that reports", "see `plimsoll gpus -o wide`")
        case several:
            problem = f"names several GPUs: {listed(map(str, several))}"
            raise InputError("GPU", name, problem, "write more of the UUID, or node/index")


def _targets(node: NodeRow, name: str) -> Iterator[Target]:
    cards: dict[str, set[str]] = {}
    places: dict[str, str] = {}  # by node/index
    for gpu in node.gpus:
        card = gpu.mig_parent or gpu.uuid
        cards.setdefault(card, {card}).add(gpu.uuid)
        places[f"{node.node}/{gpu.index}"] = card
        if gpu.uuid != card and gpu.uuid.startswith(name):
            by_card = card if gpu.cordoned else None
            yield Target(node.node, gpu.uuid, frozenset((gpu.uuid,)), by_card)
    for lost in node.health:
        if not any(lost.gpu in members for members in cards.values()):
            cards[lost.gpu] = {lost.gpu}
            places.setdefault(f"{node.node}/{lost.index}", lost.gpu)
    cards |= {uuid: {uuid} for uuid in node.stale_cordons}
    for uuid, members in cards.items():
        if uuid.startswith(name) or places.get(name) == uuid:
            yield Target(node.node, uuid, frozenset(members))


async def find(where: Where, name: str) -> Target:
    """The GPU that the user named, as the placer knows it.

    Raises:
        InputError: as of `target_of`, or the name is empty.
        NoPlacerError, PlacerRefusedError: as of `nodes_of`.
    """
    if not name:
        raise InputError("GPU", name, "is empty", "see `plimsoll gpus -o wide`")
    return target_of(name, await nodes_of(where))


async def cordon(where: Where, cluster: Cluster, name: str) -> str:
    """Cordon a GPU, and return once the placer heeds that; gives a line for people.

    Raises:
        InputError, NoPlacerError, PlacerRefusedError: as of `find`.
        NotCordonedError: the API server refused or did not answer, or the placer does not heed it.
    """
    return await cordon_target(where, cluster, await find(where, name))


async def cordon_target(where: Where, cluster: Cluster, target: Target) -> str:
    """Cordon a GPU that was found, as `cordon` does."""
    async with connected(cluster) as client:
        is_new = await _write(client, target, cordoned=True)
    await _heeded(where, target, cordoned=True)
    return f"{target}: {'cordoned' if is_new else 'already cordoned'}"


async def uncordon(where: Where, cluster: Cluster, name: str) -> str:
    """Let a GPU take pods again, and return once the placer heeds that; gives a line for people.

    Raises:
        InputError: as of `find`; or an instance is named whose card is cordoned.
        NoPlacerError, PlacerRefusedError: as of `find`.
        NotCordonedError: the API server refused or did not answer, or the placer does not heed it.
    """
    target = await find(where, name)
    async with connected(cluster) as client:
        was_cordoned = await _write(client, target, cordoned=False)
    if target.by_card is None:
        await _heeded(where, target, cordoned=False)
    elif not was_cordoned:
        problem = f"is cordoned with its card {target.by_card}"
        raise InputError("GPU", name, problem, f"run `plimsoll uncordon {target.by_card}`")
    return f"{target}: {'uncordoned' if was_cordoned else 'was not cordoned'}"


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[KubeClient]:
    """A client of the API server, whose errors name a remedy.

    Raises:
        NotCordonedError: a request was refused or not answered.
    """
    with Sent() as sent:
        try:
            async with client_of(cluster) as client:
                yield client
        except RefusedError as error:
            raise NotCordonedError(
                f"{error}; {RIGHTS if error.status == 403 else 'see `kubectl auth whoami`'}"
            ) from error
        except ApiError as error:
            outcome = "it is unknown whether it was done" if sent.any else "nothing was changed"
            raise NotCordonedError(f"{error}; {outcome}; ask again") from error


async def _write(client: KubeClient, target: Target, *, cordoned: bool) -> bool:
    """Change the node's annotation; returns whether it differs from before."""
    path = f"/api/v1/nodes/{target.node}"
    for attempt in range(ATTEMPTS):
        try:
            node = msgspec.json.decode(await client.get(path), type=Node)
        except NotFoundError as error:
            if not error.reason:  # the server is none of Kubernetes, or its path is wrong
                raise
            raise NotCordonedError(f"node {target.node} is not in this cluster; check --context") from error
        before = cordoned_gpus(node.metadata.annotations)
        after = before | {target.uuid} if cordoned else before - {target.uuid}
        if after == before:
            return False
        annotations = {CORDONED_GPUS: cordon_value(after)}
        body = {"metadata": {"resourceVersion": node.metadata.resourceVersion, "annotations": annotations}}
        try:
            await client.patch(path, body, PatchKind.MERGE)
        except ConflictError:
            await asyncio.sleep(LOOK_S * attempt)
            continue
        return True
    raise NotCordonedError(f"node {target.node} changes all the time, so it was not written; ask again")


async def _heeded(where: Where, target: Target, *, cordoned: bool) -> None:
    try:
        async with asyncio.timeout(SEEN_S), asking(where) as placer:
            while True:
                rows = [row async for row in placer.nodes(target.node, None)]
                found = [gpu.cordoned for row in rows for gpu in row.gpus if gpu.uuid in target.members]
                found += [True for row in rows if target.uuid in row.stale_cordons]
                if all(each is cordoned for each in found):
                    return
                await asyncio.sleep(LOOK_S)
    except TimeoutError as error:
        problem = f"{target}: the annotation is written, and the placer has not heeded it in {SEEN_S:g} s"
        raise NotCordonedError(f"{problem}; see `plimsoll doctor`") from error
