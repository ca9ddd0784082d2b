"""The contract of a correct scheduler, row by row: each row has a test here, or names the tests that show it.

The rows are those that a custom scheduler gets wrong: which pods it takes, which it counts, how it binds, what it
reports, and the filters in three tiers. Without a filter of tier A the kubelet fails the pod for good. Without one of
tier B the pod is stuck, or a rule of its author is broken silently. Tier C are wishes.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.world import scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest

ROOT: Final = Path(__file__).parents[3]
HERE: Final = "tests/placer/kube/test_checklist.py"
KUBE: Final = "tests/placer/kube"
PLACER: Final = "tests/placer"
SCHEDULER: Final = f"{PLACER}/scheduler"
AGREES: Final = f"{KUBE}/test_against_kube_scheduler.py::test_placer_and_kube_scheduler_agree"

ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pick pods: of our scheduler name, without node, deletion or gates, and not assumed": (
        f"{HERE}::test_a_pod_that_is_being_deleted_is_not_picked",
        f"{KUBE}/test_frontend.py::test_other_schedulers_pods_are_counted_and_left_alone",
        f"{SCHEDULER}/binding/test_binding.py::test_gated_pod_waits_until_its_gates_are_open",
        f"{SCHEDULER}/binding/test_binding.py::test_a_pod_edited_between_decision_and_bind_is_bound_at_once_and_once",
    ),
    "Count all pods: each assigned pod of any scheduler that has not ended takes resources and ports": (
        f"{HERE}::test_pods_of_every_scheduler_take_resources_and_ports_until_they_end",
        f"{SCHEDULER}/cache/test_truth.py::test_a_static_pod_of_whole_gpus_takes_its_node",
        f"{SCHEDULER}/cache/test_cache.py::test_node_that_left_and_came_back_still_has_its_pods",
        AGREES,
    ),
    "Assume, bind, confirm, forget: reserve first, forget on each failure, read again after an unclear bind": (
        f"{KUBE}/test_frontend.py::test_pods_that_arrive_together_never_share_what_only_one_can_have",
        f"{SCHEDULER}/binding/test_binding.py::test_lost_answer_never_places_a_pod_twice",
        f"{SCHEDULER}/binding/test_binding.py::test_room_stays_taken_until_the_pod_could_be_read_after_an_unclear_bind",
        f"{SCHEDULER}/binding/test_binding.py::test_deleting_a_pod_during_its_bind_frees_its_room_at_once",
        f"{SCHEDULER}/binding/test_binding.py::test_refused_bind_is_told_gives_its_room_back_and_is_tried_again",
        f"{SCHEDULER}/cache/test_cache.py::test_assumed_pod_counts_before_and_after_it_is_confirmed_and_once",
    ),
    "Bind: one write with annotations and preconditions; a pod that is bound, deleted or gated is cleared up": (
        f"{KUBE}/test_frontend.py::test_pod_is_bound_where_room_is_with_the_gpu_in_the_same_write",
        f"{SCHEDULER}/binding/test_binding.py::test_pod_bound_by_somebody_else_gives_its_room_back",
        f"{SCHEDULER}/binding/test_binding.py::test_namesake_is_not_bound_in_place_of_the_pod_that_was_decided",
        f"{SCHEDULER}/binding/test_binding.py::test_a_bind_that_is_answered_with_410_is_cleared_up_like_a_conflict",
        f"{SCHEDULER}/binding/test_binding.py::test_gated_pod_waits_until_its_gates_are_open",
    ),
    "Events: Scheduled and FailedScheduling, with a note within the API's limit": (
        f"{KUBE}/test_frontend.py::test_pod_is_bound_where_room_is_with_the_gpu_in_the_same_write",
        f"{KUBE}/test_frontend.py::test_unschedulable_pod_says_exactly_why_and_is_placed_when_a_report_brings_room",
        f"{SCHEDULER}/reporting/test_record.py::test_repeats_are_one_event_that_counts",
        f"{SCHEDULER}/reporting/test_record.py::test_endless_note_is_accepted",
    ),
    "Condition: PodScheduled=False with kube-scheduler's text, patched on change alone": (
        f"{KUBE}/test_frontend.py::test_unschedulable_pod_says_exactly_why_and_is_placed_when_a_report_brings_room",
        f"{SCHEDULER}/reporting/test_record.py::test_same_refusal_changes_the_pod_once",
        f"{SCHEDULER}/reporting/test_record.py::test_late_refusal_does_not_overwrite_a_bind",
        f"{SCHEDULER}/failures/test_renewal.py::test_reasons_follow_nodes_that_come_and_leave",
    ),
    "Queue: priority and age, backoff from 1 s to 10 s, woken by events, tried after five minutes": (
        f"{SCHEDULER}/event_handlers/test_cluster_events.py::test_change_places_the_pod_that_it_helps_and_tries_no_other",
        f"{SCHEDULER}/queue/test_queue.py::test_transcript",
    ),
    "Watch: list and watch, bookmarks, 410 lists again, and what the list lacks is deleted": (
        "tests/kube/test_reflector.py::test_list_is_read_in_pages_and_the_watch_begins_where_it_ended",
        "tests/kube/test_reflector.py::test_events_become_changes_and_move_the_version_on",
        "tests/kube/test_reflector.py::test_gone_lists_again_and_emits_the_deletions_meanwhile",
        "tests/kube/test_reflector.py::test_silent_connection_is_given_up",
        "tests/kube/test_reflector.py::test_real_server_is_followed_through_pages_changes_and_deletion",
    ),
    "Leader: no bind past the Lease, and the next leader knows all that was written": (
        "tests/placer/test_leader.py::test_one_places_and_the_other_goes_on_when_it_is_killed",
        "tests/placer/test_leader.py::test_one_that_stood_still_places_nothing_after_the_other_took_over",
        "tests/kube/test_lease.py::test_write_lasts_as_long_as_renewals_come_and_no_longer",
        f"{SCHEDULER}/binding/test_scope.py::test_a_fenced_pod_takes_no_write_of_an_earlier_version",
    ),
    "RBAC: the documented rights are enough": (
        f"{KUBE}/test_rights.py::test_the_charts_rights_are_enough_and_needed",
        f"{KUBE}/test_rights.py::test_the_charts_rights_are_enough_for_the_lease",
    ),
    "Tier A, resources: cpu, memory, ephemeral storage, extended, pods, with exact effective requests": (
        f"{HERE}::test_a_node_without_it_is_refused_and_one_with_it_is_taken",
        "tests/placer/core/test_fit.py::test_effective_request_is_kubernetes_arithmetic",
        "tests/placer/core/test_requests.py::test_a_resize_under_way_counts_at_its_largest",
        AGREES,
    ),
    "Tier A, node selector and required affinity with fields, host ports, NoExecute, operating system, groups": (
        f"{HERE}::test_a_node_without_it_is_refused_and_one_with_it_is_taken",
        "tests/placer/core/test_features.py::test_strict_groups_need_a_runtime_that_keeps_them",
        AGREES,
    ),
    "Tier B, nodes: NoSchedule, unschedulable, not ready, declared features": (
        f"{HERE}::test_a_node_without_it_is_refused_and_one_with_it_is_taken",
        "tests/placer/core/test_features.py::test_a_node_must_declare_each_feature",
        AGREES,
    ),
    "Tier B, anti-affinity of pods that have a node": (
        f"{SCHEDULER}/plugins/topology/test_against_filters.py::test_every_node_gets_the_answer_of_kube_schedulers_filters",
        AGREES,
    ),
    "Tier B, claims: node affinity of bound volumes, attach limits, RWOP, WaitForFirstConsumer": (
        f"{SCHEDULER}/plugins/volumes/test_binding.py::test_replicas_with_local_volumes_go_to_the_nodes_of_their_volumes",
        f"{SCHEDULER}/plugins/volumes/test_binding.py::test_replicas_with_zonal_volumes_stay_in_the_zones_of_their_volumes",
        f"{SCHEDULER}/plugins/volumes/test_rules.py::test_volumes_count_once_against_the_limit",
        f"{SCHEDULER}/plugins/volumes/test_index.py::test_answers_that_change_are_taken_back_and_told",
        AGREES,
    ),
    "Tier B, topology spread with DoNotSchedule": (
        f"{SCHEDULER}/plugins/topology/test_on_api_server.py::test_replicas_spread_over_zones_and_the_next_waits_for_the_full_zone",
        f"{SCHEDULER}/plugins/topology/test_against_filters.py::test_every_node_gets_the_answer_of_kube_schedulers_filters",
        AGREES,
    ),
    "Tier B, required affinity and anti-affinity between pods": (
        f"{SCHEDULER}/plugins/topology/test_on_api_server.py::test_tenants_do_not_share_a_zone",
        f"{SCHEDULER}/plugins/topology/test_waking.py::test_first_pod_of_a_group_goes_anywhere_and_the_others_follow",
        AGREES,
    ),
    "Tier B, DRA claims and gangs: refused by name": (
        f"{HERE}::test_features_that_are_lacking_are_refused_by_name",
        f"{SCHEDULER}/pods/test_refusals.py::test_unhandled_feature_is_refused_by_name",
    ),
    "Preempt: cheapest victims of lower priority, Never, PDBs, DisruptionTarget, nominated node": (
        f"{SCHEDULER}/preemption/test_preemption.py::test_victims",
        f"{SCHEDULER}/preemption/test_servers.py::test_a_victim_ends_gracefully_and_its_room_goes_to_the_preemptor",
        f"{SCHEDULER}/preemption/test_servers.py::test_the_same_pods_end_as_by_kube_scheduler",
        f"{SCHEDULER}/pods/test_nominator.py::test_room_for_pods_of_other_schedulers_is_held_too",
    ),
    "Tier C, preferred node affinity and PreferNoSchedule": (
        f"{HERE}::test_wishes_decide_between_equal_nodes",
        f"{KUBE}/test_wishes.py::test_a_wish_yields_to_a_clearly_better_gpu_and_not_to_one_hardly_better",
    ),
    "Tier C, ScheduleAnyway and preferred affinity between pods": (
        f"{SCHEDULER}/plugins/topology/test_preferences.py::test_gpus_decide_first",
        f"{SCHEDULER}/plugins/topology/test_preferences.py::test_replicas_spread_over_zones_however_many_nodes_these_have",
        f"{SCHEDULER}/plugins/topology/test_against_kube_scheduler.py::test_kube_scheduler_takes_the_same_nodes",
        f"{SCHEDULER}/plugins/topology/test_against_scores.py::test_nodes_are_ordered_as_by_kube_schedulers_scores",
    ),
}


@cache
def collected_from(path: str) -> frozenset[str]:
    """The names of the tests that pytest collects from a file."""
    tree = ast.parse((ROOT / path).read_text())
    functions = (one for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(
        one.name
        for one in functions
        if one.name.startswith("test_") and not any("skip" in ast.dump(mark) for mark in one.decorator_list)
    )


@pytest.mark.parametrize("row", ROWS)
def test_each_row_names_tests_that_exist(row: str) -> None:
    """A test that was renamed, removed or skipped leaves no row behind that it showed."""
    for test in ROWS[row]:
        path, _, name = test.partition("::")
        assert Path(path).name.startswith("test_"), f"pytest does not collect {path}"
        assert name in collected_from(path), f"{test} does not exist"


async def test_a_pod_that_is_being_deleted_is_not_picked(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Pick pods: a pod with a deletion timestamp gets no node, though one has room."""
    async with scheduler(apiserver, valkey, namespace) as world:
        manifest = pod_manifest("leaving", {"cpu": "1"})
        manifest["metadata"]["finalizers"] = ["example.com/stays"]
        await create_pod(apiserver, namespace, manifest)
        await world.until_refused("leaving", "0/0 nodes are available")
        await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/leaving")
        await create_node(apiserver, "n1")
        await create_pod(apiserver, namespace, pod_manifest("staying", {"cpu": "1"}))
        await world.until_bound("staying")
        assert not (await world.pod("leaving"))["spec"].get("nodeName")
        path = f"/api/v1/namespaces/{namespace}/pods/leaving"
        await apiserver.must("PATCH", path, {"metadata": {"finalizers": None}})


async def test_pods_of_every_scheduler_take_resources_and_ports_until_they_end(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Count all pods: a stranger's CPU and port are taken, and free once the stranger has ended."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1", {"cpu": "2"})
        stranger = pod_manifest("stranger", {"cpu": "1500m"}, scheduler="another")
        stranger["spec"]["nodeName"] = "n1"
        ports = [{"containerPort": 80, "hostPort": 8080}]
        stranger["spec"]["containers"][0]["ports"] = ports
        await create_pod(apiserver, namespace, stranger)
        await create_pod(apiserver, namespace, pod_manifest("large", {"cpu": "1"}))
        await world.until_refused("large", "1 Insufficient cpu")
        opens = pod_manifest("opens", {"cpu": "100m"})
        opens["spec"]["containers"][0]["ports"] = ports
        await create_pod(apiserver, namespace, opens)
        await world.until_refused("opens", "didn't have free ports")
        path = f"/api/v1/namespaces/{namespace}/pods/stranger/status"
        await apiserver.must("PATCH", path, {"status": {"phase": "Succeeded"}})
        for name in ("large", "opens"):
            assert (await world.until_bound(name))["spec"]["nodeName"] == "n1"


@dataclass(frozen=True, slots=True)
class Row:
    """A filter of tier A or B: a pod, a node that it must not get, and one that it may get.

    Attributes:
        reason: a part of the refusal's text.
        spec: the pod's spec, beside a container that asks for nothing.
        container: fields of that container.
        lacking, having: allocatable amounts, labels, taints and so on of the two nodes.
    """

    reason: str
    spec: Object = field(default_factory=dict)
    container: Object = field(default_factory=dict)
    lacking: Object = field(default_factory=dict)
    having: Object = field(default_factory=dict)


def asks(**amounts: str) -> Object:
    """A container that requests these amounts."""
    named = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    return {"resources": {"requests": named}}


def taint(effect: str) -> Object:
    """A node with a taint of this effect."""
    return {"taints": [{"key": "k", "value": "v", "effect": effect}]}


AFFINITY = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["having"]}]}
                ]
            }
        }
    }
}
RESTART_ALL = {
    "restartPolicy": "Never",
    "restartPolicyRules": [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
    ],
}
FPGA = {"resources": {"limits": {"example.com/fpga": "2"}}}

FILTERS: Final[Mapping[str, Row]] = {
    "A, cpu": Row("1 Insufficient cpu", {}, asks(cpu="2"), {"amounts": {"cpu": "1"}}),
    "A, memory": Row("1 Insufficient memory", {}, asks(memory="2Gi"), {"amounts": {"memory": "1Gi"}}),
    "A, ephemeral storage": Row(
        "1 Insufficient ephemeral-storage",
        {},
        asks(ephemeral_storage="2Gi"),
        {"amounts": {"ephemeral-storage": "1Gi"}},
    ),
    "A, extended resources": Row(
        "1 Insufficient example.com/fpga",
        {},
        FPGA,
        {"amounts": {"example.com/fpga": "1"}},
        {"amounts": {"example.com/fpga": "2"}},
    ),
    "A, pod count": Row("1 Too many pods", {}, {}, {"amounts": {"pods": "0"}}),
    "A, init containers": Row(
        "1 Insufficient cpu",
        {"initContainers": [{"name": "i", "image": "none", **asks(cpu="3")}]},
        asks(cpu="1"),
        {"amounts": {"cpu": "2"}},
    ),
    "A, the pod's own level": Row(
        "1 Insufficient cpu",
        {"resources": {"requests": {"cpu": "3"}}},
        asks(cpu="1"),
        {"amounts": {"cpu": "2"}},
    ),
    "A, node selector": Row(
        "didn't match Pod's node affinity/selector",
        {"nodeSelector": {"disk": "ssd"}},
        {},
        {"labels": {"disk": "hdd"}},
        {"labels": {"disk": "ssd"}},
    ),
    "A, required affinity by field": Row("didn't match Pod's node affinity/selector", AFFINITY),
    "A, NoExecute": Row("untolerated taint {k: v}", {}, {}, taint("NoExecute")),
    "A, operating system": Row(
        "didn't match Pod's operating system",
        {"os": {"name": "linux"}},
        {},
        {"labels": {"kubernetes.io/os": "windows"}},
        {"labels": {"kubernetes.io/os": "linux"}},
    ),
    "A, supplemental groups": Row(
        "didn't support SupplementalGroupsPolicy=Strict",
        {"securityContext": {"supplementalGroupsPolicy": "Strict"}},
        {},
        {},
        {"status": {"features": {"supplementalGroupsPolicy": True}}},
    ),
    "B, NoSchedule": Row("untolerated taint {k: v}", {}, {}, taint("NoSchedule")),
    "B, unschedulable": Row("1 node(s) were unschedulable", {}, {}, {"unschedulable": True}),
    "B, not ready": Row("1 node(s) were not ready", {}, {}, {"ready": False}),
    "B, declared features": Row(
        "didn't match Pod's required features",
        {"restartPolicy": "Never"},
        RESTART_ALL,
        {},
        {"status": {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}},
    ),
}


async def make_node(api: ApiServer, name: str, what: Object) -> None:
    """Make a node of a row."""
    await create_node(
        api,
        name,
        what.get("amounts"),
        labels=what.get("labels"),
        taints=what.get("taints", ()),
        ready=what.get("ready", True),
    )
    if what.get("unschedulable"):
        await api.must("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    if "status" in what:
        await api.must("PATCH", f"/api/v1/nodes/{name}/status", {"status": what["status"]})


@pytest.mark.parametrize("row", FILTERS)
async def test_a_node_without_it_is_refused_and_one_with_it_is_taken(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, row: str
) -> None:
    """Tiers A and B: the pod waits with the reason of kube-scheduler or the kubelet, and gets a node that will do."""
    case = FILTERS[row]
    await make_node(apiserver, "lacking", case.lacking)
    async with scheduler(apiserver, valkey, namespace) as world:
        manifest = pod_manifest("p")
        manifest["spec"]["containers"][0].update(case.container)
        manifest["spec"].update(case.spec)
        await create_pod(apiserver, namespace, manifest)
        await world.until_refused("p", case.reason)
        await make_node(apiserver, "having", case.having)
        assert (await world.until_bound("p"))["spec"]["nodeName"] == "having"


async def test_features_that_are_lacking_are_refused_by_name(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Tier B: a pod with a DRA claim, or with a resource that stands for one, is never placed as if it had none."""
    claims: dict[str, Any] = pod_manifest("claims")
    claims["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "some"}]
    claims["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    implied = pod_manifest("implied", {"deviceclass.resource.kubernetes.io/gpu": "1"})
    await create_node(apiserver, "n1")
    async with scheduler(apiserver, valkey, namespace) as world:
        for manifest, name in (
            (claims, "spec.resourceClaims"),
            (implied, "deviceclass.resource.kubernetes.io/gpu"),
        ):
            await create_pod(apiserver, namespace, manifest)
            pod = await world.until_refused(manifest["metadata"]["name"], name)
            assert not pod["spec"].get("nodeName")


async def test_wishes_decide_between_equal_nodes(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Tier C: the preferred node is taken, and a discouraged one only once there is no other."""
    await create_node(apiserver, "a", labels={"disk": "hdd"})
    await create_node(apiserver, "b", labels={"disk": "ssd"})
    discourages = [{"key": "k", "effect": "PreferNoSchedule"}]
    await create_node(apiserver, "c", labels={"disk": "ssd"}, taints=discourages)
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    async with scheduler(apiserver, valkey, namespace) as world:
        for number in range(2):
            manifest = pod_manifest(f"p{number}")
            manifest["spec"]["affinity"] = {"nodeAffinity": preferred}
            await create_pod(apiserver, namespace, manifest)
            assert (await world.until_bound(f"p{number}"))["spec"]["nodeName"] == "b"
