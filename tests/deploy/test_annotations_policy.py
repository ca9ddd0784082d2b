"""With the shipped admission policy on a real API server a tenant cannot raise its own line."""

import asyncio
import contextlib
import json
import re
import shutil
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.servers.apiserver import Answer, ApiServer, Object
from tests.servers.objects import create_node, pod_manifest
from tests.servers.waiting import until

POLICY = Path(__file__).parents[2] / "deploy" / "annotations-policy.yaml"
PODS_PAGE = POLICY.parents[1] / "docs" / "pods.md"
SHIPPED_WRITER = "system:serviceaccount:plimsoll-system:plimsoll-placer"
PLACER, TENANT = "plimsoll-placer", "somebody"
RESIZE_ROLE = Path(__file__).parents[2] / "deploy" / "resize-role.yaml"
TICKET, AUTHOR = "plimsoll.dev/resize", "plimsoll.dev/resize-by"
SUBRESOURCES = ("/status", "/ephemeralcontainers", "/resize")
OURS = ("gpus.plimsoll.dev/main", "plimsoll.dev/decision")
PROBE = "/api/v1/namespaces/default/pods?dryRun=All"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
async def policy(session_apiserver: ApiServer) -> AsyncIterator[None]:
    """The policy in force, and all usual rights over pods for placer and tenant.

    The tenant stands for every user but the placer, kubelets included.
    """
    apiserver = session_apiserver
    role = f"pods-{uuid.uuid4().hex[:8]}"
    resources = ["pods", *(f"pods{rest}" for rest in SUBRESOURCES), "pods/binding", "bindings"]
    # A role with the verb `*` would have `resize` too.
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    rules = [{"apiGroups": [""], "resources": resources, "verbs": verbs}]
    await apiserver.must("POST", f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": rules})
    subjects = [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": n} for n in (PLACER, TENANT)
    ]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects}
    await apiserver.must("POST", f"{RBAC}/clusterrolebindings", binding)
    text = await asyncio.to_thread(POLICY.read_text)
    assert text.count(SHIPPED_WRITER) == 1
    manifest = text.replace(SHIPPED_WRITER, PLACER)
    try:
        await apiserver.kubectl("apply", "--filename=-", stdin=manifest)
        probe = pod_manifest("probe", annotations={OURS[0]: "GPU-1"})

        async def in_force() -> bool:
            return (await apiserver.call("POST", PROBE, probe, user=TENANT)).status == 403

        await until(in_force)
        yield
    finally:
        # All files of tests share the API server, so a policy left behind would refuse the next file's pods.
        await apiserver.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=manifest)
        for kind in ("clusterrolebindings", "clusterroles"):
            await apiserver.must("DELETE", f"{RBAC}/{kind}/{role}")

        async def out_of_force() -> bool:
            return (await apiserver.call("POST", PROBE, probe)).status < 400

        await until(out_of_force)


@pytest.fixture
def guarded(policy: None, namespace: str) -> str:  # noqa: ARG001 - it is in force
    """A namespace in which the policy is in force."""
    return namespace


def pods(namespace: str, rest: str = "") -> str:
    """The path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods{rest}"


async def annotate(
    api: ApiServer, namespace: str, annotations: dict[str, str | None], user: str, rest: str = ""
) -> Answer:
    """Patch the annotations of pod `p`, or of one of its subresources."""
    body = {"metadata": {"annotations": annotations}}
    return await api.call("PATCH", pods(namespace, f"/p{rest}"), body, user=user)


def binding(node: str, annotations: dict[str, str]) -> Object:
    """A Binding of pod `p`."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


async def bound(api: ApiServer, namespace: str) -> None:
    """The tenant's pod `p`, bound and resized by the placer."""
    await create_node(api, "n1")
    await api.must("POST", pods(namespace), pod_manifest("p", annotations={"mine": "1"}), user=TENANT)
    given = {OURS[0]: "GPU-1", OURS[1]: "{}"}
    await api.must("POST", pods(namespace, "/p/binding"), binding("n1", given), user=PLACER)
    answer = await annotate(api, namespace, {OURS[1]: '{"main":{"GPU-1":1}}'}, PLACER)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("name", [*OURS, "gpus.plimsoll.dev/side"])
async def test_nobody_but_the_placer_creates_pods_with_its_annotations(
    apiserver: ApiServer, guarded: str, name: str
) -> None:
    """Only the placer creates pods with its annotations.

    Even an administrator is refused, with the annotation and the remedy in the message.
    """
    for user in (TENANT, "admin"):
        answer = await apiserver.call(
            "POST", pods(guarded), pod_manifest("p", annotations={name: "x"}), user=user
        )
        assert answer.status == 403
        message = answer.body["message"]
        assert (
            f"metadata.annotations[{name}]: is written by Plimsoll's placer alone, not by {user}" in message
        )
        assert "remove it: each pod gets its own, and `plimsoll resize` changes it" in message


async def test_a_copy_of_a_placed_pod_needs_the_documents_filter(apiserver: ApiServer, guarded: str) -> None:
    """A placed pod as `kubectl get` prints it is refused; what `jq` leaves of it, as the page says, is taken."""
    if shutil.which("jq") is None:
        pytest.skip("the page's command needs jq")
    await bound(apiserver, guarded)
    placed = json.dumps(await apiserver.get(pods(guarded, "/p")))
    page = await asyncio.to_thread(PODS_PAGE.read_text)
    [program] = re.findall(r"-o json \| jq '(.*?)' >copy.json", page, re.DOTALL)
    filtering = await asyncio.create_subprocess_exec("jq", program, stdin=PIPE, stdout=PIPE)
    copied, _ = await filtering.communicate(placed.encode())
    answers = []
    for text in (placed, copied):
        body = json.loads(text)
        body["metadata"]["name"] = "copy"
        body["metadata"].pop("resourceVersion", None)
        answers.append(await apiserver.call("POST", pods(guarded), body, user=TENANT))
    refused, taken = answers
    assert (refused.status, taken.status) == (403, 201)
    assert taken.body["metadata"]["annotations"] == {"mine": "1"}
    assert "nodeName" not in taken.body["spec"]


@pytest.mark.parametrize("rest", ["", *SUBRESOURCES])
@pytest.mark.parametrize("value", ['{"main":{"GPU-1":2}}', None])
async def test_nobody_but_the_placer_changes_them(
    apiserver: ApiServer, guarded: str, rest: str, value: str | None
) -> None:
    """Only the placer writes or removes its annotations, through the pod or any of its subresources."""
    await bound(apiserver, guarded)
    answer = await annotate(apiserver, guarded, {OURS[1]: value}, TENANT, rest)
    stored = (await apiserver.get(pods(guarded, "/p")))["metadata"]["annotations"]
    assert stored[OURS[1]] == '{"main":{"GPU-1":1}}'
    assert answer.status == 403 or rest in {"/ephemeralcontainers", "/resize"}, answer.body


WISHES = ("best-effort", "gpu-share-limit", "policy", "gpu-model", "anything")


@pytest.mark.parametrize("rest", ["", "/status"])
@pytest.mark.parametrize("user", [TENANT, "admin"])
async def test_after_the_bind_every_annotation_of_ours_is_frozen(
    apiserver: ApiServer, guarded: str, rest: str, user: str
) -> None:
    """A tenant changes its wishes until its pod has a node. From then on nobody adds, changes or removes one."""
    await create_node(apiserver, "n1")
    wishes = {f"plimsoll.dev/{name}": "1" for name in WISHES[:-1]}
    await apiserver.must("POST", pods(guarded), pod_manifest("p", annotations=wishes), user=TENANT)
    early = await annotate(apiserver, guarded, {f"plimsoll.dev/{WISHES[0]}": "2"}, user)
    assert early.status == 200, early.body
    given = {OURS[0]: "GPU-1", OURS[1]: "{}"}
    await apiserver.must("POST", pods(guarded, "/p/binding"), binding("n1", given), user=PLACER)
    before = (await apiserver.get(pods(guarded, "/p")))["metadata"]["annotations"]
    for name in WISHES:
        for value in ("3", None) if name != "anything" else ("3",):
            answer = await annotate(apiserver, guarded, {f"plimsoll.dev/{name}": value}, user, rest)
            assert answer.status == 403, (name, value)
            assert (
                f"plimsoll.dev/{name}]: is written by Plimsoll's placer alone once" in answer.body["message"]
            )
    assert (await apiserver.get(pods(guarded, "/p")))["metadata"]["annotations"] == before
    freed = await annotate(apiserver, guarded, {f"plimsoll.dev/{WISHES[0]}": None}, PLACER)
    assert freed.status == 200, freed.body


async def test_nobody_but_the_placer_binds_with_them(apiserver: ApiServer, guarded: str) -> None:
    """A Binding with the placer's annotations is refused on either path, as they would become the pod's.

    A plain Binding passes.
    """
    await create_node(apiserver, "n1")
    await apiserver.must("POST", pods(guarded), pod_manifest("p"), user=TENANT)
    for path in (pods(guarded, "/p/binding"), f"/api/v1/namespaces/{guarded}/bindings"):
        answer = await apiserver.call("POST", path, binding("n1", {OURS[0]: "GPU-1"}), user=TENANT)
        assert answer.status == 403
        assert "is written by Plimsoll's placer alone" in answer.body["message"]
    await apiserver.must("POST", pods(guarded, "/p/binding"), binding("n1", {"theirs": "1"}), user=TENANT)


async def test_everything_else_passes(apiserver: ApiServer, guarded: str) -> None:
    """The policy admits all else: the placer's binding and resize, a kubelet's status, a tenant's own changes."""
    await bound(apiserver, guarded)
    stored = (await apiserver.get(pods(guarded, "/p")))["metadata"]["annotations"]
    assert stored == {"mine": "1", OURS[0]: "GPU-1", OURS[1]: '{"main":{"GPU-1":1}}'}
    status = {"status": {"phase": "Running", "podIP": "10.0.0.1"}}
    assert (await apiserver.call("PATCH", pods(guarded, "/p/status"), status, user=TENANT)).status == 200
    whole = await apiserver.get(pods(guarded, "/p"))
    whole["status"]["phase"] = "Succeeded"
    assert (await apiserver.call("PUT", pods(guarded, "/p/status"), whole, user=TENANT)).status == 200
    assert (await annotate(apiserver, guarded, {"mine": "2"}, TENANT)).status == 200
    labels = {"metadata": {"labels": {"app": "x"}}}
    assert (await apiserver.call("PATCH", pods(guarded, "/p"), labels, user=TENANT)).status == 200
    gone = await apiserver.call("DELETE", pods(guarded, "/p?gracePeriodSeconds=0"), user=TENANT)
    assert gone.status == 200
    plain = await apiserver.call("POST", pods(guarded), pod_manifest("p"), user=TENANT)
    assert plain.status == 201
    assert (await annotate(apiserver, guarded, {"plimsoll.dev/policy": "headroom"}, TENANT)).status == 200


@contextlib.asynccontextmanager
async def with_right_to_resize(api: ApiServer, namespace: str, user: str) -> AsyncIterator[None]:
    """Give a user the shipped role in this namespace."""
    role = await asyncio.to_thread(RESIZE_ROLE.read_text)
    await api.kubectl("apply", "--filename=-", stdin=role)
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    given = {
        "metadata": {"name": "operators"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "plimsoll-resize",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await api.must("POST", path, given)
    try:
        yield
    finally:
        await api.must("DELETE", f"{path}/operators")
        await api.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=role)


async def test_a_ticket_for_a_resize_needs_the_right_to_resize(apiserver: ApiServer, guarded: str) -> None:
    """The right to edit pods is none to resize them. The verb `resize` is one to write tickets, and nothing else."""
    await bound(apiserver, guarded)
    refused = await annotate(apiserver, guarded, {TICKET: "{}"}, TENANT)
    assert refused.status == 403
    assert (
        f"metadata.annotations[{TICKET}]: {TENANT} has no right to the verb `resize`"
        in refused.body["message"]
    )
    assert "deploy/resize-role.yaml" in refused.body["message"]
    async with with_right_to_resize(apiserver, guarded, TENANT):

        async def is_allowed() -> bool:  # the API server reads new roles with a delay
            signed: dict[str, str | None] = {TICKET: "{}", AUTHOR: TENANT}
            return (await annotate(apiserver, guarded, signed, TENANT)).status == 200

        await until(is_allowed)
        # The event about a resize names its author, so nobody writes a ticket in another one's name, or in none.
        for text, author in (("{}", PLACER), ("[]", None), ("[]", "")):
            forged = await annotate(apiserver, guarded, {TICKET: text, AUTHOR: author}, TENANT)
            assert forged.status == 403, author
            assert f"metadata.annotations[{AUTHOR}]: must be {TENANT}" in forged.body["message"]
        for name in ("plimsoll.dev/resize-answer", "plimsoll.dev/decision", "plimsoll.dev/policy"):
            answer = await annotate(apiserver, guarded, {TICKET: "[]", AUTHOR: TENANT, name: "x"}, TENANT)
            assert answer.status == 403, name
            assert f"metadata.annotations[{name}]: is written by Plimsoll's placer" in answer.body["message"]
        assert (await annotate(apiserver, guarded, {TICKET: None, AUTHOR: None}, TENANT)).status == 200
    answered = await annotate(apiserver, guarded, {"plimsoll.dev/resize-answer": "{}"}, PLACER)
    assert answered.status == 200, answered.body


async def test_no_pod_is_born_with_a_ticket(apiserver: ApiServer, guarded: str) -> None:
    """A ticket in a manifest, or on a pod that waits, would be carried out after its bind: nobody may write it."""
    async with with_right_to_resize(apiserver, guarded, TENANT):
        born = await apiserver.call(
            "POST", pods(guarded), pod_manifest("p", annotations={TICKET: "{}"}), user="admin"
        )
        assert born.status == 403, born.body
        await apiserver.must("POST", pods(guarded), pod_manifest("p"), user=TENANT)
        assert (await annotate(apiserver, guarded, {TICKET: "{}"}, "admin")).status == 403
