"""The checks of what an operator took out: placing that is paused, and nodes whose broker left before their pods."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from plimsoll.broker.volume import DRIVER, uses_volume
from plimsoll.cordons import PAUSED, pause_of
from plimsoll.kube.client import KubeClient
from plimsoll.kube.transport import NotFoundError
from plimsoll_cli.doctor.finding import Finding, failed, listed, ok, warning


async def placing(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether somebody has paused the placer; nothing without its namespace."""
    try:
        found = msgspec.json.decode(await client.get(f"/api/v1/namespaces/{namespace}"))
    except NotFoundError:
        return []
    reason = pause_of(found["metadata"].get("annotations"))
    if reason is None:
        return [ok("placing", "placing is not paused")]
    text = f"placing is paused{f': {reason}' if reason else ''}; no pod gets a node"
    return [
        warning("placing", text, f"end the pause with `kubectl annotate namespace {namespace} {PAUSED}-`")
    ]


async def volumes(client: KubeClient, namespace: str) -> list[Finding]:
    """Whether the kubelets can unmount the volumes of our pods. Else these pods never end, and no event says why."""
    driven = {
        node["metadata"]["name"]
        async for node in _each(client, "/apis/storage.k8s.io/v1/csinodes")
        if any(driver["name"] == DRIVER for driver in node["spec"].get("drivers") or ())
    }
    pods = Counter(
        [
            pod["spec"]["nodeName"]
            async for pod in _each(client, "/api/v1/pods")
            if pod["spec"].get("nodeName") and uses_volume(pod["spec"].get("volumes"))
        ]
    )
    if lacking := [f"{node} ({count})" for node, count in pods.items() if node not in driven]:
        text = f"nodes without a broker have pods with its volume, which cannot end: {listed(lacking)}"
        remedy = (
            f"let the broker back until they have ended: see `kubectl -n {namespace} get pods -l app=plimsoll-broker "
            "-o wide`, the label of nodes.selector on the nodes, and their taints"
        )
        return [failed("volumes", text, remedy)]
    return [ok("volumes", f"each node that has pods with our volume has a broker: {len(pods)}")]


async def _each(client: KubeClient, path: str) -> AsyncIterator[dict[str, Any]]:
    more = ""
    while True:
        query = [("limit", "500"), *([("continue", more)] if more else [])]
        page = msgspec.json.decode(await client.get(path, query))
        for item in page["items"]:
            yield item
        more = page["metadata"].get("continue", "")
        if not more:
            return
