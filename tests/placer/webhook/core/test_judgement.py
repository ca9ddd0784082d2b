"""A pod that cannot work is refused with field, value and remedy; a pod of others passes untouched."""

import pytest

from placer.webhook.core.judgement import AdmissionRules, judge_creation, judge_ephemeral, judge_update
from plimsoll.dialects import Json
from plimsoll.part.errors import InputError
from tests.placer.webhook.core.pods import GPU, MEMORY, container, gpu_pod, judged, pod

EXTENDED = AdmissionRules(extended=("default-scheduler",))


def under(scheduler: str | None, given: Json) -> Json:
    """The pod under another scheduler."""
    spec = {name: value for name, value in given["spec"].items() if name != "schedulerName"}
    if scheduler is not None:
        spec["schedulerName"] = scheduler
    return {**given, "spec": spec}


@pytest.mark.parametrize("scheduler", [None, "default-scheduler", "other"])
def test_another_schedulers_pod_without_gpus_is_untouched(scheduler: str | None) -> None:
    """A pod that has nothing to do with us comes back as it is, with an extender and without one."""
    given = under(scheduler, pod(container(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])))
    assert judged(given).pod is given
    assert judged(given, EXTENDED).pod is given


@pytest.mark.parametrize(
    "given",
    [
        pod(container(limits={MEMORY: "1Gi"})),
        pod(container(limits={"plimsoll.dev/gpu-memroy": "1Gi"})),
        pod(container(), initContainers=[container("init", resources={"requests": {GPU: 1}})]),
        pod(container(), annotations={"plimsoll.dev/best-effort": "true"}),
        pod(container(), annotations={"gpus.plimsoll.dev/main": "GPU-1"}),
    ],
)
@pytest.mark.parametrize("scheduler", [None, "default-scheduler", "other"])
def test_our_resources_under_a_scheduler_that_does_not_know_them_are_refused(
    given: Json, scheduler: str | None
) -> None:
    """Without an extender such a pod would run without a line. The message names scheduler and remedy."""
    name = scheduler or "default-scheduler"
    expected = rf"spec.schedulerName: '{name}' knows nothing of .*; write plimsoll, or remove"
    with pytest.raises(InputError, match=expected):
        judged(under(scheduler, given))


def test_with_an_extender_its_schedulers_pods_get_all_they_need() -> None:
    """The pod is checked and injected as one of our own scheduler's, and keeps its scheduler."""
    found = judged(under(None, gpu_pod()), EXTENDED).pod["spec"]
    assert "schedulerName" not in found
    assert [one["csi"]["driver"] for one in found["volumes"]] == ["plimsoll.dev"]
    with pytest.raises(InputError, match="is no resource of Plimsoll"):
        judged(under(None, pod(container(limits={"plimsoll.dev/gpu-memroy": "1Gi"}))), EXTENDED)


def test_a_feature_that_only_kube_scheduler_has_is_its_own_business() -> None:
    """Our scheduler refuses resource claims by name; under kube-scheduler with the extender they are fine."""
    given = gpu_pod()
    given["spec"]["resourceClaims"] = [{"name": "nic"}]
    with pytest.raises(InputError, match=r"spec.resourceClaims.*; remove it$"):
        judged(given)
    assert judged(under(None, given), EXTENDED).pod["spec"]["volumes"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            pod(container(limits={MEMORY: "-1"})),
            r"spec.containers\[main\].resources.*'-1' is negative; give 0 or more",
        ),
        (
            pod(container(limits={MEMORY: "1Gi"}), annotations={"plimsoll.dev/policy": "best"}),
            r"plimsoll.dev/policy.*best",
        ),
        (
            pod(container(limits={MEMORY: "1Gi"}), annotations={"plimsoll.dev/affinity": "a b"}),
            r"plimsoll.dev/affinity.*'a b' is no label; give 1 to 63 letters",
        ),
        (
            pod(container(limits={GPU: 1}), nodeName="n1"),
            r"spec.nodeName: 'n1'.*select the node by spec.nodeSelector",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_once(given: Json, message: str) -> None:
    """The contract's refusals come at creation, with field, value and remedy."""
    with pytest.raises(InputError, match=message):
        judged(given)


def test_a_static_pods_mirror_is_left_alone() -> None:
    """The kubelet reports a pod that runs already. Refused, nobody would count its GPUs."""
    given = under(
        None, pod(container(limits={GPU: 1}), annotations={"kubernetes.io/config.mirror": "h"}, nodeName="n")
    )
    assert judged(given).pod is given


def test_an_update_of_a_waiting_pod_is_checked() -> None:
    """An annotation of ours may change to one that works, and to no other."""
    old = pod(container(limits={MEMORY: "1Gi"}), annotations={"plimsoll.dev/gpu-model": "L4"})
    good = pod(container(limits={MEMORY: "1Gi"}), annotations={"plimsoll.dev/gpu-model": "A10"})
    assert judge_update(good, old, AdmissionRules()).pod is good
    for bad in (
        {"plimsoll.dev/gpu-modle": "A10"},
        {"plimsoll.dev/decision": "{}"},
        {"gpus.plimsoll.dev/main": "x"},
    ):
        with pytest.raises(InputError, match=next(iter(bad))):
            judge_update(pod(container(limits={MEMORY: "1Gi"}), annotations=bad), old, AdmissionRules())


def test_other_updates_pass() -> None:
    """A bound pod is the policy's, a deleted pod must lose its finalizers, and a pod that was bad stays free."""
    bad = pod(container(limits={MEMORY: "1Gi"}), annotations={"plimsoll.dev/bad": "1"})
    good = pod(container(limits={MEMORY: "1Gi"}))
    bound = {**bad, "spec": {**bad["spec"], "nodeName": "n1"}}
    deleted = {**bad, "metadata": {**bad["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    for new, old in ((bound, good), (deleted, good), (bad, bad)):
        assert judge_update(new, old, AdmissionRules()).pod is new


def test_new_ephemeral_containers_see_no_gpu() -> None:
    """The new ones get `void`, and the old ones, which nobody can change, stay as they are."""
    old = gpu_pod()
    old["spec"]["ephemeralContainers"] = [container("first")]
    new = gpu_pod()
    new["spec"]["ephemeralContainers"] = [container("first"), container("second")]
    found = judge_ephemeral(new, old, AdmissionRules()).pod["spec"]
    assert found["containers"] is new["spec"]["containers"]
    assert found["ephemeralContainers"][0] == container("first")
    assert found["ephemeralContainers"][1]["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert judge_ephemeral(under(None, new), under(None, old), AdmissionRules()).pod["spec"][
        "ephemeralContainers"
    ] == [
        container("first"),
        container("second"),
    ]


def test_what_is_no_pod_is_refused() -> None:
    """An object of another form is refused with the path of the wrong field."""
    nothing: Json = {}
    pods: list[Json] = [nothing, {"spec": {}}, {"spec": {"containers": []}}, pod({"name": 1})]
    for given in pods:
        with pytest.raises(InputError):
            judge_creation(given, AdmissionRules())


def test_a_default_of_a_limit_range_is_told() -> None:
    """The author of the pod learns which of its resources came from a LimitRange, and not those that did not."""
    note = (
        f"LimitRanger plugin set: cpu, {GPU}, {MEMORY} request for container main; "
        f"{MEMORY} limit for container main; "
        f"cpu request for init container first; {GPU} limit for init container second"
    )
    given = pod(container(limits={MEMORY: "1Gi"}), annotations={"kubernetes.io/limit-ranger": note})
    remark, *_ = judged(given).remarks
    assert remark == (
        f"a LimitRange of the namespace gave it {GPU} of container main, {MEMORY} of container main, "
        f"{GPU} of init container second, by its defaults (kubectl -n default get limitranges)"
    )
    of_others = {"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container main"}
    assert judged(pod(container(limits={MEMORY: "1Gi"}), annotations=of_others)).remarks == ()
