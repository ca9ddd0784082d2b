"""Programs that lose the variables of their container keep its line, on a real kubelet and runc."""

import json
import uuid
from collections.abc import AsyncIterator

import pytest

from tests.node import preloads
from tests.node.images import LOADER
from tests.node.node import Node
from tests.node.parts import running_parts
from tests.node.progress import say
from tests.node.tenants import LINE_GIB, template
from tests.placer.webhook.scene import scene
from tests.servers.apiserver import Object

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]

PAST = f"busy --memory {LINE_GIB + 1}Gi"
"""A program that takes more than its line."""


@pytest.fixture(scope="module")
async def tenants(node: Node) -> AsyncIterator[str]:
    """A namespace without Pod Security, whose pods pass the webhook."""
    await preloads.import_images(node)
    name = f"preloads-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await node.until_account(name)
    async with running_parts(node), scene(node.api, name):
        yield name
        await node.remove_namespace(name)


def pod_of(name: str, image: str, *command: str, **context: object) -> Object:
    """A pod of the two lines, of this image."""
    pod = template(name, *command)
    pod["spec"]["containers"][0] |= {"image": image, "securityContext": context}
    return pod


async def ended(node: Node, namespace: str, pod: Object) -> str:
    """The output of a pod, once it has ended; the pod is deleted then."""
    name = pod["metadata"]["name"]
    await node.create(namespace, pod)
    await node.until_phase(namespace, name, "Succeeded", "Failed")
    output = await node.logs(namespace, name)
    say(name, output=output)
    await node.delete(namespace, name)
    return output


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("cleared", f"exec env -i PATH=/usr/bin {PAST}"),
        ("unset", f"unset LD_PRELOAD; exec {PAST}"),
        ("loader", f"exec env -i /{LOADER} /usr/bin/{PAST}"),
        ("sudo", f"exec sudo {PAST}"),
        ("sudo-user", f"exec sudo -u user env -i /usr/bin/{PAST}"),
    ],
)
@pytest.mark.parametrize("is_read_only", [False, True], ids=["", "read-only root"])
async def test_a_program_without_its_variables_is_held(
    node: Node, tenants: str, name: str, script: str, *, is_read_only: bool
) -> None:
    """A cleared environment, and the rights of another user by sudo, take no line away, and nothing is complained."""
    context = {"runAsUser": 1000, "readOnlyRootFilesystem": is_read_only}
    pod = pod_of(f"{name}{'-ro' * is_read_only}", preloads.SUDO, "sh", "-c", script, **context)
    output = await ended(node, tenants, pod)
    assert json.loads(output.splitlines()[-1])["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert "ld.so" not in output


async def test_the_preloads_of_an_image_go_on(node: Node, tenants: str) -> None:
    """The first program of a container has the image's own preloads, and the library, and later ones as well."""
    pod = pod_of("own", preloads.OWN, "busy", "--memory", "1Gi", "--hold-seconds", "3000")
    await node.create(tenants, pod)
    await node.until_ready(tenants, "own")
    for name in (preloads.OWN_LIBRARY, "/run/plimsoll/lib/libplimsoll.so"):
        maps = await node.run(tenants, "own", "grep", name, "/proc/1/maps")
        say("mapped", name=name, maps=maps.splitlines()[0])
    lines = (await node.run(tenants, "own", "cat", "/etc/ld.so.preload")).splitlines()
    assert lines == ["/run/plimsoll/lib/libplimsoll.so", "# the image's own", preloads.OWN_LIBRARY]
    output = await node.run(tenants, "own", "sh", "-c", f"env -i {PAST} 2>&1 || true")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in output
    await node.delete(tenants, "own")


async def test_containers_of_every_kind_are_held(node: Node, tenants: str) -> None:
    """An init container and a sidecar have their lines without the variable, and an image without `/etc` runs."""
    pod = pod_of("kinds", preloads.BARE, "/busybox", "cat", "/etc/ld.so.preload", readOnlyRootFilesystem=True)
    main = pod["spec"]["containers"][0]
    main["securityContext"] |= {"runAsUser": 1000, "runAsNonRoot": True}
    past = f"env -i PATH=/usr/bin {PAST}; echo ended with $?"
    init = main | {"name": "init", "image": preloads.SUDO, "command": ["sh", "-c", past]}
    stays = ["sh", "-c", f"{past}; touch tmp/done; exec sleep 3000"]
    probe = {"exec": {"command": ["ls", "tmp/done"]}, "periodSeconds": 1, "failureThreshold": 180}
    context = main["securityContext"] | {"readOnlyRootFilesystem": False}
    side = init | {"name": "side", "command": stays, "restartPolicy": "Always", "startupProbe": probe}
    pod["spec"]["initContainers"] = [side | {"securityContext": context}, init]
    await node.create(tenants, pod)
    await node.until_phase(tenants, "kinds", "Succeeded", "Failed")
    outputs = {
        name: (await node.api.kubectl("logs", f"--namespace={tenants}", "kinds", f"--container={name}"))
        for name in ("init", "side", "main")
    }
    say("kinds", outputs=outputs)
    for name in ("init", "side"):
        assert json.loads(outputs[name].splitlines()[-2])["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert outputs["main"] == "/run/plimsoll/lib/libplimsoll.so\n"
    await node.delete(tenants, "kinds")
