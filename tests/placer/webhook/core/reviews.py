"""AdmissionReviews for the webhook's tests: good ones, and ones that hypothesis damages anywhere."""

import copy
import json
from base64 import b64decode
from typing import Any

from hypothesis import strategies as st

from plimsoll.broker.volume import csi_volume
from plimsoll.dialects import Json
from tests.placer.webhook.core.pods import GPU, MEMORY, container, gpu_pod, pod

NAMES = st.sampled_from(
    ["", "main", "plimsoll", "env", "LD_PRELOAD", "NVIDIA_VISIBLE_DEVICES", "/run/plimsoll", "💥", "0"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES
    | st.text(max_size=8).filter(lambda text: text.isprintable())
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            NAMES | st.sampled_from([MEMORY, GPU, "name", "value", "limits"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


def review(given: Any, operation: str = "CREATE", old: Any = None, subresource: str = "") -> Json:  # noqa: ANN401
    """The review of an object, as the API server sends it."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": subresource,
            "namespace": "default",
            "operation": operation,
            "userInfo": {"username": "admin", "groups": ["system:authenticated"]},
            "object": given,
            "oldObject": old,
            "dryRun": False,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    }


def patch_of(answer: bytes) -> list[Json]:
    """The patch of an answer; empty if it has none."""
    response = json.loads(answer)["response"]
    return json.loads(b64decode(response["patch"])) if "patch" in response else []


def assert_well_formed(answer: bytes, uid: str) -> None:
    """The answer is a review's answer, as the API server demands it."""
    decoded = json.loads(answer)
    assert (decoded["apiVersion"], decoded["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = decoded["response"]
    assert response["uid"] == uid
    assert isinstance(response["allowed"], bool)
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    assert all(isinstance(line, str) and len(line) <= 256 for line in response.get("warnings", ()))
    if response["allowed"]:
        for operation in patch_of(answer):
            assert operation.keys() <= {"op", "path", "value"}
    else:
        assert 400 <= response["status"]["code"] < 500
        assert response["status"]["message"]


def rich_pod() -> Json:
    """A pod with every field that the webhook reads."""
    main = gpu_pod()["spec"]["containers"][0] | {
        "env": [{"name": "LD_PRELOAD", "value": "/a.so"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "securityContext": {"privileged": False},
    }
    return pod(
        main,
        container("side"),
        initContainers=[container("init", limits={"cpu": 1})],
        ephemeralContainers=[container("debug")],
        volumes=[{"name": "data", "emptyDir": {}}, csi_volume("lines", "main")],
        runtimeClassName="nvidia",
        nodeName=None,
        tolerations=[{"key": "k", "operator": "Exists"}],
        annotations={"plimsoll.dev/gpu-model": "L4", "gpu-fraction": "0.5"},
    )


@st.composite
def damaged(draw: st.DrawFn) -> Json:
    """A review whose object has any value in some places."""
    operation, subresource = draw(
        st.sampled_from([("CREATE", ""), ("UPDATE", ""), ("UPDATE", "ephemeralcontainers"), ("DELETE", "")])
    )
    given, old = copy.deepcopy(rich_pod()), copy.deepcopy(rich_pod())
    for root in (given, old):
        for _ in range(draw(st.integers(0, 3))):
            holder: Any = root
            while True:
                keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
                if not keys:
                    break
                key = draw(st.sampled_from(keys))
                if isinstance(holder[key], dict | list) and draw(st.booleans()):
                    holder = holder[key]
                    continue
                if draw(st.booleans()):
                    holder[key] = draw(ANYTHING)
                else:
                    del holder[key]
                break
    return review(draw(st.just(given) | ANYTHING), operation, draw(st.just(old) | ANYTHING), subresource)
