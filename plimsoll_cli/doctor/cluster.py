"""The checks of a cluster, by the caller's own kubeconfig: the API server first, then what is installed there.

What always holds: what the caller may not read is skipped and says so. Such a check counts neither as passed nor as
failed.
"""

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from plimsoll.contract import PLACER_LEASE
from plimsoll.kube.client import KubeClient
from plimsoll.kube.lease_rules import NOTE
from plimsoll.kube.models import ObjectMeta
from plimsoll.kube.transport import ApiError, NotFoundError
from plimsoll.part.errors import InputError
from plimsoll_cli.cluster import NAME, Cluster, client_of
from plimsoll_cli.doctor.finding import Finding, failed, failed_by, listed, ok, skipped, warning
from plimsoll_cli.doctor.installation import gpu_access, missing_rights, nodes, policies, webhook, workloads
from plimsoll_cli.doctor.taken_out import placing, volumes

LEASE_LOOK_S: Final = 0.5
LEASE_WAIT_S: Final = 20.0
"""Seconds in which a leader must have renewed its Lease. The longest Lease, of 60 s, is renewed every 15 s."""

CLOCK_S: Final = 10.0
"""Seconds by which clocks may differ, as on the bus."""

DENIED: Final = 403

ClusterCheck = Callable[[KubeClient, str], Awaitable[list[Finding]]]


class _Version(msgspec.Struct, frozen=True):
    gitVersion: str  # noqa: N815 - Kubernetes' name


class _LeaseSpec(msgspec.Struct, frozen=True):
    holderIdentity: str | None = None  # noqa: N815 - Kubernetes' name
    renewTime: datetime | None = None  # noqa: N815 - likewise
    leaseDurationSeconds: int | None = None  # noqa: N815 - likewise


class _Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _LeaseSpec = _LeaseSpec()


class _Leases(msgspec.Struct, frozen=True):
    items: tuple[_Lease, ...] = ()


async def cluster(where: Cluster, namespace: str) -> AsyncIterator[Finding]:
    """The findings, one after another; none after the first if the API server does not answer.

    Args:
        where: the cluster, as kubectl names it.
        namespace: the namespace of the release.
    """
    if not NAME.fullmatch(namespace):
        remedy = "name the release's, as in `helm list -A`"
        yield failed("namespace", f"--namespace: {namespace!r} cannot be a namespace", remedy)
        return
    try:
        async with client_of(where) as client:
            version = msgspec.json.decode(await client.get("/version"), type=_Version)
            yield ok("api-server", f"answers, Kubernetes {version.gitVersion}")
            for check, run in CHECKS.items():
                for finding in await _checked(check, run, client, namespace):
                    yield finding
    except InputError as error:
        named = where.kubeconfig or where.context or os.environ.get("KUBECONFIG")
        if named or error.value is not None:
            yield failed_by("api-server", error)
        else:
            yield skipped("api-server", "no kubeconfig was given", "give --kubeconfig, or set KUBECONFIG")
    except (ApiError, msgspec.MsgspecError) as error:
        remedy = "see `kubectl cluster-info` with the same kubeconfig, and `kubectl auth whoami`"
        yield failed("api-server", str(error), remedy)


async def _checked(check: str, run: ClusterCheck, client: KubeClient, namespace: str) -> list[Finding]:
    try:
        return await run(client, namespace)
    except ApiError as error:
        if error.status == DENIED:
            remedy = "ask again with an account that may read it, such as the cluster's administrator"
            return [skipped(check, f"this account may not look: {error}", remedy)]
        return [failed(check, str(error), "ask again; if it stays, see the API server's log")]


async def _leader(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether a placer renews the Lease. Only a change is taken for one: no clock is needed to see it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{PLACER_LEASE}"
    logs = f"see `kubectl -n {namespace} logs deploy/plimsoll-placer`"
    try:
        first = await _lease(client, path)
    except NotFoundError:
        text = f"no placer has ever led: namespace {namespace} has no Lease {PLACER_LEASE}"
        remedy = f"{logs}; if the release is elsewhere, name its namespace with --namespace"
        return [failed("leader", text, remedy)]
    before, until_s = datetime.now(UTC), time.monotonic() + LEASE_WAIT_S
    while time.monotonic() < until_s:
        await asyncio.sleep(LEASE_LOOK_S)
        asked = datetime.now(UTC)
        now = await _lease(client, path)
        if now.holderIdentity and now.renewTime is not None and now.renewTime != first.renewTime:
            answered = datetime.now(UTC)
            return [ok("leader", f"{now.holderIdentity} leads"), _clock(now.renewTime, before, answered)]
        before = asked
    holder = first.holderIdentity or "nobody"
    text = (
        f"no placer leads: the Lease {PLACER_LEASE} is {holder}'s and was not renewed in {LEASE_WAIT_S:.0f} s"
    )
    return [failed("leader", text, f"{logs}, and `kubectl -n {namespace} get pods -l app=plimsoll-placer`")]


async def _lease(client: KubeClient, path: str) -> _LeaseSpec:
    return msgspec.json.decode(await client.get(path), type=_Lease).spec


async def _other_leases(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether a placer renews another Lease than the release's: both place pods, and neither sees the other."""
    first = await _notes(client, namespace)
    now: dict[str, _LeaseSpec] = {}
    if first:
        longest_s = max(one.leaseDurationSeconds or 0 for one in first.values())
        await asyncio.sleep(min(max(longest_s / 2, LEASE_LOOK_S), LEASE_WAIT_S))
        now = await _notes(client, namespace)
    live = [name for name, one in first.items() if name in now and now[name].renewTime != one.renewTime]
    if not live:
        return [ok("other-leases", "no placer renews another Lease")]
    holders = listed(f"{name} ({now[name].holderIdentity})" for name in sorted(live))
    text = f"further placers lead, by Leases of their own, and may promise the same room: {holders}"
    remedy = "give all placers of the cluster the same PLIMSOLL_LEASE_NAMESPACE, or end them"
    return [failed("other-leases", text, remedy)]


async def _notes(client: KubeClient, namespace: str) -> dict[str, _LeaseSpec]:
    """The held Leases with a placer's note, by namespace and name, but for the release's own."""
    leases = msgspec.json.decode(await client.get("/apis/coordination.k8s.io/v1/leases"), type=_Leases)
    named = {f"{one.metadata.namespace}/{one.metadata.name}": one for one in leases.items}
    return {
        name: one.spec
        for name, one in named.items()
        if NOTE in (one.metadata.annotations or {})
        and one.spec.holderIdentity
        and name != f"{namespace}/{PLACER_LEASE}"
    }


def _clock(renewed: datetime, before: datetime, after: datetime) -> Finding:
    """Compare the leader's clock with this machine's: the Lease was renewed between two readings of it."""
    ahead_s, behind_s = (renewed - after).total_seconds(), (before - renewed).total_seconds()
    if max(ahead_s, behind_s) <= CLOCK_S:
        return ok("clock", "this machine's clock and the leader's agree")
    by_s, way = (ahead_s, "ahead of") if ahead_s > behind_s else (behind_s, "behind")
    remedy = "see `timedatectl` on both, and start chrony or systemd-timesyncd on the one that is wrong"
    return warning("clock", f"the leader's clock is {math.floor(by_s)} s {way} this machine's", remedy)


CHECKS: Final[dict[str, ClusterCheck]] = {
    "parts": workloads,
    "leader": _leader,
    "other-leases": _other_leases,
    "rights": missing_rights,
    "webhook": webhook,
    "policies": policies,
    "gpu-access": gpu_access,
    "nodes": nodes,
    "placing": placing,
    "volumes": volumes,
}
"""The checks, by the names of their first findings, in the order in which causes come before effects."""
