"""Reviews of realistic pods, each with the form of its answer."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

Json = dict[str, Any]

SEED: Final = 7

_LIMITS: Final[Mapping[str, Json]] = {
    "gpu": {"plimsoll.dev/gpu-memory": "8Gi", "plimsoll.dev/gpu-share": "30"},
    "plain": {},
    "bad": {"plimsoll.dev/gpu-memory": "3", "plimsoll.dev/gpu": "2"},
    "hami": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "30"},
}
"""The GPU request of the main container, by the kind of the pod."""

_ENV: Final = [{"name": f"SETTING_{index}", "value": f"value of setting {index}"} for index in range(40)]
_MOUNTS: Final = [{"name": f"volume-{index}", "mountPath": f"/mnt/{index}"} for index in range(4)]
_VOLUMES: Final = [{"name": f"volume-{index}", "configMap": {"name": f"c{index}"}} for index in range(4)]
_FIELDS: Final[Json] = {f"f:field-{index}": {".": {}, "f:name": {}, "f:value": {}} for index in range(60)}
_PROBE: Final = {
    "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
    "periodSeconds": 10,
    "timeoutSeconds": 1,
}
_SIDE: Final = {
    "name": "proxy",
    "image": "registry.example.com/mesh/proxy:9",
    "env": _ENV[:10],
    "volumeMounts": _MOUNTS[:1],
}


@dataclass(frozen=True, slots=True)
class ReviewCase:
    """A review and the form of its answer.

    Attributes:
        body: the review in JSON.
        outcome: `patched`, `unchanged` or `refused`.
    """

    body: bytes
    outcome: str


def pod(kind: str, at: int) -> Json:
    """A pod as a controller makes it: two containers, an init container, volumes, probes and 40 variables.

    Args:
        kind: `gpu`, `plain`, `bad`, or `hami`.
        at: makes names differ.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(at),
        "spec": {
            "schedulerName": "default-scheduler" if kind == "hami" else "plimsoll",
            "containers": [_main(_LIMITS[kind]), _SIDE],
            "initContainers": [{**_SIDE, "name": "init"}],
            "volumes": _VOLUMES,
            "serviceAccountName": "serve",
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }


def _metadata(at: int) -> Json:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"serve-{at}",
        "uid": f"{at:032x}",
        "controller": True,
    }
    return {
        "generateName": f"serve-{at}-",
        "namespace": "team-a",
        "labels": {"app": "serve", "pod-template-hash": f"{at:x}"},
        "annotations": {"prometheus.io/scrape": "true", "example.com/checksum": "0" * 64},
        "ownerReferences": [owner],
        "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": _FIELDS}],
    }


def _main(limits: Json) -> Json:
    return {
        "name": "main",
        "image": "registry.example.com/team/serve:1.2.3",
        "args": ["--model", "large", "--port", "8080"],
        "env": _ENV,
        "resources": {
            "limits": {"cpu": "4", "memory": "16Gi", **limits},
            "requests": {"cpu": "2", "memory": "16Gi", **limits},
        },
        "volumeMounts": _MOUNTS,
        "livenessProbe": _PROBE,
        "readinessProbe": _PROBE,
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }


def review(given: Json, at: int) -> bytes:
    """The review of a new pod, as the API server sends it."""
    user = "system:serviceaccount:kube-system:replicaset-controller"
    request = {
        "uid": f"{at:08x}-0000-4000-8000-000000000000",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": user, "groups": ["system:serviceaccounts", "system:authenticated"]},
        "object": given,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return msgspec.json.encode(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    )


def cases() -> list[ReviewCase]:
    """A hundred reviews: 60 of pods with GPUs, 20 without, 10 in HAMi's way, and 10 that are refused."""
    kinds = ["gpu"] * 60 + ["plain"] * 20 + ["hami"] * 10 + ["bad"] * 10
    random.Random(SEED).shuffle(kinds)
    return [
        ReviewCase(review(pod(kind, at), at), "refused" if kind == "bad" else "patched")
        for at, kind in enumerate(kinds)
    ]


def check(case: ReviewCase, answer: bytes) -> None:
    """Fail on an answer that is not the expected one."""
    response = json.loads(answer)["response"]
    found = "refused" if not response["allowed"] else "patched" if "patch" in response else "unchanged"
    assert found == case.outcome, response
