"""`plimsoll drain`: cordons one GPU, and evicts the pods on it, as `kubectl drain` does for a node.

What always holds: every eviction is asked for by the Eviction API, so disruption budgets are heeded, and concerns the
very pod that was seen. Pods on other GPUs of the node stay. Nothing is evicted while one of the pods must not be.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from plimsoll.contract import assigned_gpus
from plimsoll.kube.client import KubeClient
from plimsoll.kube.models import TERMINAL_PHASES, Page, Pod, decode_pod
from plimsoll.kube.transport import ConflictError, NotFoundError, TransientError
from plimsoll_cli import cordon
from plimsoll_cli.asking import Where
from plimsoll_cli.cluster import Cluster
from plimsoll_cli.cordon import NotCordonedError, Target
from plimsoll_cli.doctor.finding import listed
from plimsoll_cli.output import printable

LOOK_S: Final = 1.0
"""Seconds between two looks at the pods that are left. A budget that forbids an eviction is asked again as often."""

TOO_MANY_REQUESTS: Final = 429
MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of the kubelet's own pods, which no request ends."""


@dataclass(frozen=True, slots=True)
class DrainRules:
    """The pods that may be evicted, and for how long that may take.

    Attributes:
        force: also pods that no controller replaces.
        deletes_emptydir: also pods with an emptyDir, whose content is lost.
        timeout_s: None waits as long as it takes.
    """

    force: bool = False
    deletes_emptydir: bool = False
    timeout_s: float | None = None


async def drain(
    where: Where, cluster: Cluster, name: str, rules: DrainRules, say: Callable[[str], None]
) -> str:
    """Cordon a GPU, and return a last line once no pod is on it. After cancelling, the GPU stays cordoned.

    Args:
        where: the placer.
        cluster: the cluster of the pods.
        name: the GPU, as of `target_of`.
        rules: see there.
        say: takes each line of progress.

    Raises:
        InputError, NoPlacerError, PlacerRefusedError: as of `cordon.find`.
        NotCordonedError: a pod must not be evicted by the rules, pods were left after the timeout, or the API server
            refused or did not answer.
    """
    target = await cordon.find(where, name)
    say(await cordon.cordon_target(where, cluster, target))
    async with cordon.connected(cluster) as client:
        said: set[str] = set()
        left = await _pods_on(client, target)  # before the timeout, whose text names them
        try:
            async with asyncio.timeout(rules.timeout_s):
                while left:
                    staying = [pod for pod in left if not pod.metadata.deletionTimestamp]
                    _check(staying, rules)
                    for pod in staying:
                        await _evict(client, pod, said, say)
                    await asyncio.sleep(LOOK_S)
                    left = await _pods_on(client, target)
        except TimeoutError as error:
            names = listed(pod.full_name for pod in left)
            problem = f"{target}: after {rules.timeout_s:g} s these pods are still there: {names}"
            raise NotCordonedError(f"{problem}; see their disruption budgets and grace periods") from error
    return f"{target}: drained"


async def _pods_on(client: KubeClient, target: Target) -> list[Pod]:
    """The pods on the GPU that have not ended."""
    pods: list[Pod] = []
    more = ""
    while True:
        query = [
            ("fieldSelector", f"spec.nodeName={target.node}"),
            ("limit", "500"),
            *([("continue", more)] if more else []),
        ]
        page = msgspec.json.decode(await client.get("/api/v1/pods", query), type=Page)
        pods += [pod for raw in page.items or () if _is_on(pod := decode_pod(bytes(raw)), target)]
        if not (more := page.metadata.more):
            return pods


def _is_on(pod: Pod, target: Target) -> bool:
    gpus = {gpu for assigned in assigned_gpus(pod).values() for gpu in assigned}
    return pod.status.phase not in TERMINAL_PHASES and not target.members.isdisjoint(gpus)


def _check(pods: Sequence[Pod], rules: DrainRules) -> None:
    """Refuse before one of the pods is evicted."""
    problems = []
    if static := [pod.full_name for pod in pods if MIRROR in (pod.metadata.annotations or {})]:
        problems.append(f"no eviction ends the kubelet's own pods: {listed(static)}; remove their files")
    if not rules.force and (alone := [pod.full_name for pod in pods if not _has_controller(pod)]):
        problems.append(f"no controller replaces {listed(alone)}; give --force to end them")
    local = [pod.full_name for pod in pods if any("emptyDir" in volume for volume in pod.spec.volumes or ())]
    if local and not rules.deletes_emptydir:
        problems.append(f"an emptyDir is lost with {listed(local)}; give --delete-emptydir-data")
    if problems:
        raise NotCordonedError(f"the GPU stays cordoned, and its pods run on: {'; '.join(problems)}")


def _has_controller(pod: Pod) -> bool:
    return any(owner.controller for owner in pod.metadata.ownerReferences or ())


async def _evict(client: KubeClient, pod: Pod, said: set[str], say: Callable[[str], None]) -> None:
    """Ask for a pod's eviction; each line about it is said once."""
    meta = pod.metadata
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": {"preconditions": {"uid": meta.uid}},
    }
    try:
        await client.post(f"{pod.path}/eviction", body)
    except (NotFoundError, ConflictError):
        return  # it ended by itself, or changed at this moment
    except TransientError as error:
        if error.status != TOO_MANY_REQUESTS:
            raise
        line = f"pod {pod.full_name}: its disruption budget forbids an eviction now; trying again"
    else:
        line = f"pod {pod.full_name}: evicted"
    if line not in said:
        said.add(line)
        say(printable(line))
