"""Pods of users on a test node: two resource lines, in a form that Pod Security's `restricted` admits."""

import json
from typing import Any

from tests.node.node import START_S, Node, program_pod, says_ready
from tests.node.progress import say
from tests.servers.apiserver import Object
from tests.servers.waiting import until

GPU_KEY = "gpus.plimsoll.dev/main"
LINE_GIB = 4
SHARE_PCT = 30
LINES = {"plimsoll.dev/gpu-memory": f"{LINE_GIB}Gi", "plimsoll.dev/gpu-share": str(SHARE_PCT)}
SECURE = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
HOLDS = ("busy", "--memory", "1Gi", "--hold-seconds", "3000")


def secure(container: dict[str, Any]) -> None:
    """Give a container what `restricted` asks for."""
    container["securityContext"] = SECURE


def template(name: str, *command: str, annotations: dict[str, str] | None = None, **spec: str) -> Object:
    """A pod of the two lines, as its author writes it."""
    pod = program_pod(name, *command, limits=LINES, change=secure, schedulerName="plimsoll")
    pod["spec"] |= spec
    pod["metadata"]["annotations"] = annotations or {}
    return pod


async def deploy(node: Node, namespace: str, name: str, *command: str) -> None:
    """Create a Deployment of one such pod."""
    pod = template(name, *command, restartPolicy="Always")
    body = {
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": pod["metadata"] | {"name": None}, "spec": pod["spec"]},
        },
    }
    await node.api.must("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", body)


async def until_one_ready(node: Node, namespace: str, name: str, *, but: str = "") -> Object:
    """Wait until a Deployment's only pod is ready, and is not the pod of the uid `but`; returns it."""

    async def look() -> Object | None:
        pods = await node.pods(namespace, f"app={name}")
        living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        ready = [pod for pod in living if says_ready(pod) and pod["metadata"]["uid"] != but]
        return ready[0] if len(ready) == len(living) == 1 else None

    try:
        found = await until(look, timeout_s=START_S)
    except AssertionError as error:
        accounts = [
            await node.account(namespace, pod["metadata"]["name"]) for pod in await node.pods(namespace)
        ]
        raise AssertionError("\n".join([str(error), *accounts])) from error
    assert found is not None
    return found


async def refuse_past_line(node: Node, namespace: str, pod: str) -> None:
    """A program in the container gets memory up to the line and none past it."""
    done = json.loads((await node.run(namespace, pod, "busy", "--memory", "1Gi")).splitlines()[-1])
    assert done["phase"] == "done", done
    script = f"busy --memory {LINE_GIB}Gi; echo ended with $?"
    *_, failed, ended = (await node.run(namespace, pod, "sh", "-c", script)).splitlines()
    say("past the line", told=json.loads(failed))
    assert json.loads(failed)["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert ended == "ended with 2"


def runs(pod: Object) -> tuple[str, int]:
    """The identity of a pod's container, and how often it was started again."""
    [status] = pod["status"]["containerStatuses"]
    return status["containerID"], status["restartCount"]
