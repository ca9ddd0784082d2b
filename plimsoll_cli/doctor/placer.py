"""The checks of a placer by its HTTP API: whether it can place pods, and what it doubts."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

from plimsoll.part.errors import InputError
from plimsoll.placer_api.client import PlacerAwayError, PlacerRefusedError
from plimsoll.placer_api.http import State
from plimsoll_cli.asking import NoPlacerError, Where, connected, shown_place
from plimsoll_cli.doctor.finding import Finding, failed, failed_by, listed, ok, skipped, warning

PLACER: Final = "--placer or PLIMSOLL_PLACER_URL"
ANSWER_S: Final = 30.0
"""The state of 20 000 nodes takes some seconds."""


async def placer(where: Where, namespace: str) -> AsyncIterator[Finding]:
    """The findings, one after another.

    Args:
        where: the placer; empty for none.
        namespace: the namespace of the release, for the remedy.
    """
    try:
        async with connected(where, ANSWER_S) as client:
            missing = await client.missing()
            if missing:
                remedy = "see the placer's log; the checks of NATS, Redis and the cluster say what to mend"
                yield failed("placer", f"it cannot place pods yet: {'; '.join(missing)}", remedy)
            state = await client.state()
    except NoPlacerError:
        remedy = (
            f"give {PLACER}: http://127.0.0.1:8080 after `kubectl -n {namespace} port-forward deploy/"
            "plimsoll-placer 8080`; or a kubeconfig"
        )
        yield skipped("placer", "no address of the placer was given", remedy)
        return
    except InputError as error:
        yield failed_by("placer", error)
        return
    except (PlacerAwayError, PlacerRefusedError) as error:
        yield failed_by("placer", f"no placer answers at {shown_place(where)}: {error}")
        return
    if not missing:
        yield ok("placer", f"{shown_place(where)} can place pods")
    for finding in _judged(state):
        yield finding


def _judged(state: State) -> Iterator[Finding]:
    """The findings from the placer's state."""
    if not state.nodes:
        remedy = "start the monitors; if they run, compare their PLIMSOLL_NATS_URL with the placer's"
        yield failed("nodes", "it knows no node, so no pod can be placed", remedy)
    elif silent := [node.node for node in state.nodes if node.silent]:
        text = f"{len(silent)} of {len(state.nodes)} nodes are silent for it: {listed(silent)}"
        yield failed("nodes", text, "see the logs of the monitors there, and whether they reach NATS")
    else:
        yield ok("nodes", f"nodes that it knows: {len(state.nodes)}")
    if closed := [f"{node.node} ({', '.join(node.closed)})" for node in state.nodes if node.closed]:
        remedy = (
            "uncordon or mend them, or remove their label `plimsoll.dev/node=off`, unless that is intended"
        )
        yield warning("closed-nodes", f"nodes that take no new pods: {listed(closed)}", remedy)
    gpus = [f"{node.node}/{gpu.index}" for node in state.nodes for gpu in node.gpus if gpu.cordoned]
    if gpus:
        remedy = "run `plimsoll uncordon` for those that may take pods again"
        yield warning("cordoned-gpus", f"GPUs that are cordoned: {listed(gpus)}", remedy)
    if stale := [f"{uuid} on {node.node}" for node in state.nodes for uuid in node.stale_cordons]:
        remedy = "run `plimsoll uncordon` for them; cordon the card that came in its place, if it should take no pods"
        yield warning("stale-cordons", f"cordoned GPUs that are not there: {listed(stale)}", remedy)
    if state.doubts:
        pods = listed(f"{one.namespace}/{one.name}" for one in state.doubts)
        remedy = "run `plimsoll explain` for these pods; delete a pod whose decision somebody else changed"
        yield warning("decisions", f"pods whose decisions are in doubt: {pods}", remedy)
