"""Pods as JSON for the webhook's tests, and the judgement of them as a test reads it."""

import copy
from collections.abc import Mapping
from typing import Any

from placer.webhook.core.judgement import AdmissionRules, Admitted, judge_creation
from plimsoll.dialects import Json

MEMORY, SHARE, GPU = "plimsoll.dev/gpu-memory", "plimsoll.dev/gpu-share", "plimsoll.dev/gpu"


def container(name: str = "main", limits: Mapping[str, object] | None = None, **fields: Any) -> Json:  # noqa: ANN401
    """A container; `fields` are set as they are."""
    made: Json = {"name": name, "image": "none", **fields}
    if limits is not None:
        made["resources"] = {"limits": dict(limits)}
    return made


def pod(*containers: Json, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:  # noqa: ANN401
    """A pod for our scheduler; `spec` sets further fields of its spec."""
    metadata: Json = {"name": "p"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    spec = {"schedulerName": "plimsoll", "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def gpu_pod(**fields: Any) -> Json:  # noqa: ANN401
    """A pod with the two resource lines of the README; `fields` are its only container's."""
    return pod(container(limits={MEMORY: "8Gi", SHARE: 30}, **fields))


def judged(given: Json, rules: AdmissionRules | None = None) -> Admitted:
    """The judgement of a new pod, after it left the given object as it was and has nothing more to change."""
    rules = rules or AdmissionRules()
    before = copy.deepcopy(given)
    found = judge_creation(given, rules)
    assert given == before
    again = judge_creation(found.pod, rules)
    assert again.pod is found.pod
    return found


def variables(found: Json) -> dict[str, Json]:
    """A container's variables by name, each once."""
    env = found.get("env") or []
    assert len({one["name"] for one in env}) == len(env)
    return {one["name"]: one for one in env}
