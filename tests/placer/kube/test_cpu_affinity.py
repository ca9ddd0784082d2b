"""A pod that wants to be near its GPUs: from its annotation, over the decision, to the broker's registration."""

from dataclasses import replace

import msgspec
import pytest

from hook.broker.pods import registration
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import policy_named
from placer.core.policy_context import Request
from placer.core.topology.hardware import linked
from placer.core.view import node_view
from placer.scheduler.binding.binding import decision_annotations
from plimsoll.decision import decision_of
from plimsoll.demand import parse_pod
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.kube.models import Pod
from simulator.gaia.matrix import parse_matrix
from tests.placer.core.topology.matrices import FIGURE_7
from tests.placer.core.worlds import gpu, state

GPUS = [GpuUuid(f"GPU-{number}") for number in range(4)]
CPUS = dict(zip(GPUS, map(frozenset, ({0, 1}, {0, 1}, {2, 3, 8}, {2, 3, 8})), strict=True))


def pod(annotations: dict[str, str]) -> Pod:
    """A pod of one container that asks for two whole GPUs."""
    container = {"name": "main", "resources": {"limits": {"plimsoll.dev/gpu": "2"}}}
    metadata = {"name": "trainer", "namespace": "team-a", "uid": "u", "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [container]}}, Pod)


@pytest.mark.parametrize(("annotation", "cpus"), [("true", "2-3,8"), ("false", "")])
def test_the_broker_binds_what_the_pod_asked_for(annotation: str, cpus: str) -> None:
    """The broker registers the CPUs near the pair of GPUs that the policy chose, and none if the pod wants none."""
    asking = pod({"plimsoll.dev/cpu-affinity": annotation, "plimsoll.dev/policy": "topology"})
    demand = parse_pod(asking)
    node = replace(
        node_view(state("n", *map(gpu, GPUS))), hardware=linked(GPUS, parse_matrix(FIGURE_7), CPUS)
    )
    policy = policy_named(demand.policy or "", "policy")
    planned = plan_on(Request(PodUid("u"), demand), node, Ledger(), policy)
    assert isinstance(planned, Plan)
    bound = pod(decision_annotations(planned, "2026-01-01T00:00:00Z"))
    registered = registration(bound)
    decided = decision_of(bound)
    assert registered is not None
    assert decided is not None
    assert [line.gpu for line in registered.containers[0].lines] == GPUS[2:]
    assert registered.containers[0].cpus == cpus
    assert decided.note == "links of main: PIX"
