"""Runs all groups of checks side by side, each with a deadline."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from plimsoll.bus.access import BusAccess
from plimsoll_cli.asking import Where
from plimsoll_cli.cluster import Cluster
from plimsoll_cli.doctor.bus import bus
from plimsoll_cli.doctor.cluster import cluster
from plimsoll_cli.doctor.finding import Finding, failed
from plimsoll_cli.doctor.machine import Machine, machine
from plimsoll_cli.doctor.placer import placer
from plimsoll_cli.doctor.redis import redis_list

GROUP_S: Final = 90.0
"""The longest time for a group: a driver that hangs takes 30 s, and each request to a server that hangs 5 to 30."""


@dataclass(frozen=True, slots=True)
class Places:
    """The addresses of the parts. A part with an empty address is not examined.

    Attributes:
        machine: this machine.
        nats_url, access: the bus, and the files to come in by.
        redis_url: the sorted list.
        placer: the placer's address. Where none was given, the placer is sought in the cluster.
        cluster: the cluster, as kubectl names it.
        namespace: the namespace of the release there.
    """

    machine: Machine
    nats_url: str
    access: BusAccess
    redis_url: str
    placer: Where
    cluster: Cluster
    namespace: str


class Group(Struct, frozen=True, kw_only=True):
    """The findings about one part."""

    name: str
    findings: tuple[Finding, ...]


async def examine(places: Places) -> tuple[Group, ...]:
    """All groups, in their fixed order; takes as long as the slowest."""
    groups = {
        "this machine": machine(places.machine),
        "bus": bus(places.nats_url, places.access),
        "list": redis_list(places.redis_url),
        "placer": placer(places.placer, places.namespace),
        "cluster": cluster(places.cluster, places.namespace),
    }
    return tuple(await asyncio.gather(*(_group(name, checks) for name, checks in groups.items())))


async def _group(name: str, checks: AsyncIterator[Finding]) -> Group:
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(GROUP_S):
            async for finding in checks:
                findings.append(finding)  # noqa: PERF401 - those before an error are kept
    except TimeoutError:
        remedy = "see whether its server hangs, and the network between"
        findings.append(failed("time", f"the checks did not end in {GROUP_S:.0f} s", remedy))
    except Exception as error:  # noqa: BLE001 - one broken check must not hide the findings of the others
        remedy = "report it as a bug of `plimsoll doctor`, with this line"
        findings.append(failed("doctor", f"the check itself failed: {type(error).__name__}: {error}", remedy))
    return Group(name=name, findings=tuple(findings))
