"""The readiness of the placer: the things that it lacks for its work at this moment.

A placer that lacks something for less than `GRACE_S`, as after an answer that was lost, is ready all the same.
"""

from typing import Final

from nats.aio.client import Client

from placer.cluster_link import ClusterLink
from placer.intake.intake import Intake

GRACE_S: Final = 5.0
"""Seconds without a live watch, or without an answer about reports or the lease, after which the placer is not ready.
Shorter times also pass while everything is well: a request for reports that finds none, or the pause after an answer
that was lost, takes 2 s, and the next answer must have time to come."""


def lacking(client: Client, intake: Intake, cluster: ClusterLink | None) -> list[str]:
    """The things that the placer lacks for its work at this moment, for people."""
    missing = []
    if not client.is_connected:
        missing.append("NATS is out of reach")
    if not intake.ready.is_set():
        missing.append("the last reports are still being read")
    elif intake.silent_s() > GRACE_S:
        missing.append("reports are not being read")
    return missing + (cluster.missing(GRACE_S) if cluster else [])
