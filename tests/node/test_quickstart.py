"""The commands of the documents lead from a cluster with GPUs to a pod with a line, and away again.

They are run as they stand, in order. The node brings what the documents ask for: images in its store under the names
of the registry, a RuntimeClass, a label, and the chart values of `release.node_values`.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from plimsoll.native import PROGRAMS
from tests.node.containers import ctr, import_image
from tests.node.helm import VALUES_VARIABLE
from tests.node.images import program_files, write_archive
from tests.node.node import START_S, Node
from tests.node.progress import say
from tests.node.quickstart import (
    APPLY,
    DESCRIBE,
    DOCTOR,
    EXPLAIN,
    LIST_PODS,
    README,
    REMOVE_RESOURCES,
    RESIZE_LINE,
    RESIZE_SHARE,
    SET_UP,
    SHOW_GPUS,
    SHOW_MEMORY,
    SHOW_POD,
    UNINSTALL,
    FailedError,
    Shell,
    placer_forwarded,
    shell,
)
from tests.node.release import ARCHIVES, IMAGES, TAG, missing_images, node_values, servers_outside
from tests.servers.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]

REGISTRY = "registry.example.com"
"""The registry that `docs/install.md` names."""
CUDA = "docker.io/nvidia/cuda:12.9.1-base-ubuntu22.04"
TRAINER = "docker.io/my/trainer:latest"


@pytest.fixture(scope="module")
async def reader(node: Node) -> AsyncIterator[Shell]:
    """A reader's shell, beside a registry that has all images."""
    if missing := missing_images():
        pytest.skip(f"no images: {', '.join(missing)}; remedy: `make e2e-kube` builds them")
    await put_images(node)
    async with servers_outside(node) as (nats, valkey):
        values = node.directory / "quickstart-values.yaml"
        values.write_text(yaml.safe_dump(node_values(node, nats, valkey)))
        yield shell(node.directory / "reader", node.api.kubeconfig(), **{VALUES_VARIABLE: str(values)})


async def put_images(node: Node) -> None:
    """Put our images, and small ones in place of a user's, into the node's store under the documents' names."""
    root = node.directory / "containerd"
    for archive, name in zip(ARCHIVES, ("plimsoll", "plimsoll-node"), strict=True):
        await import_image(root, IMAGES / archive)
        await ctr(root, "images", "tag", "--force", f"localhost/{name}:{TAG}", f"{REGISTRY}/{name}:{TAG}")
    # `nvidia-smi` is the driver's. Here, it is the tests' own program, which prints what CUDA and NVML tell.
    for name, program, command in ((CUDA, "view", "nvidia-smi"), (TRAINER, "busy", "busy")):
        path = node.directory / f"{command}.tar"
        default = (command, "--memory", "1Gi", "--hold-seconds", "3000")
        write_archive(path, name, program_files({command: PROGRAMS / program}), default)
        await import_image(root, path)


async def execute(reader: Shell, command: str, **more: str) -> str:
    """Run a command, with more variables, and show it with its output."""
    output = await reader.run(command, **more)
    say(f"$ {command}\n{output}")
    return output


async def test_ten_minutes(node: Node, reader: Shell) -> None:
    """From the namespace to a pod that sees its line; each command works the first time."""
    for command in SET_UP:
        await execute(reader, command)

    async def advertised() -> bool:
        return "<none>" not in (await reader.run(SHOW_MEMORY))

    await until(advertised, timeout_s=START_S)  # "within a minute"
    for command in (SHOW_MEMORY, APPLY, SHOW_POD):
        await execute(reader, command)
    await node.until_phase("default", "first", "Succeeded")
    assert "Successfully assigned default/first" in await execute(reader, DESCRIBE)
    [gpu] = (await node.seen("default", "first"))["nvml"]["gpus"]
    say("what the first pod saw", **gpu)
    assert gpu["total_bytes"] == 4 << 30


async def test_the_readmes_pod(node: Node, reader: Shell) -> None:
    """The pod of the README's two lines runs; `gpus`, `explain`, `doctor` and `resize` answer as the README has them.

    The image of a person's own is in the node's store, so the pod must not pull it.
    """
    [text] = [one for one in README.split("```yaml\n")[1:] if "name: trainer" in one]
    pod = yaml.safe_load(text.partition("```")[0])
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    path = Path(reader.variables["HOME"]) / "trainer.yaml"
    path.write_text(yaml.safe_dump(pod))
    await reader.run(f"kubectl create namespace team-a; kubectl apply -n team-a -f {path}")
    await node.until_ready("team-a", "trainer")
    async with placer_forwarded(reader) as url:
        assert "/23Gi" in await execute(reader, SHOW_GPUS, PLIMSOLL_PLACER_URL=url)
        assert "trainer" in await execute(reader, EXPLAIN, PLIMSOLL_PLACER_URL=url)
        # It ends with 1 here: the reader's own machine has no driver.
        told = await execute(reader, f"if {DOCTOR}\nthen :; fi", PLIMSOLL_PLACER_URL=url)
        assert "\ncluster\n" in told
    for command in (RESIZE_LINE, RESIZE_SHARE):
        await execute(reader, command)


async def test_a_quota_bounds_a_resize(reader: Shell) -> None:
    """A raise past the namespace's quota is refused by its name, one within it is confirmed, and both are told."""
    quota = "requests.plimsoll.dev/gpu-memory=14Gi"
    await execute(reader, f"kubectl create quota bound -n team-a --hard={quota}")
    resize = "plimsoll resize -n team-a trainer --gpu-memory"
    with pytest.raises(FailedError, match=r"ResourceQuota.*bound"):
        await execute(reader, f"{resize} 16Gi")
    await execute(reader, f"{resize} 13Gi")
    events = "kubectl get events -n team-a --field-selector reason=Resized -o jsonpath='{.items[*].message}'"

    async def notes() -> str:
        return await reader.run(events)

    assert "12Gi -> 13Gi" in await until(notes)


async def test_uninstalling(reader: Shell) -> None:
    """Nothing of the release stays but what the document names, and its commands remove that."""
    await reader.run("kubectl delete pod first; kubectl delete pod -n team-a --grace-period=1 trainer")
    await reader.run("kubectl delete namespace team-a")
    assert "No resources found" in await execute(reader, LIST_PODS)
    await execute(reader, UNINSTALL)
    await reader.run("kubectl wait --for=delete pods --all -n plimsoll-system --timeout=180s")
    left = await execute(reader, "kubectl -n plimsoll-system get secrets,leases -o name")
    assert left.split() == [
        "secret/plimsoll-webhook-certificates",
        "lease.coordination.k8s.io/plimsoll-placer",
    ]
    await execute(reader, "kubectl delete namespace plimsoll-system")
    name = (await reader.run("kubectl get nodes -o name")).strip().removeprefix("node/")
    await execute(reader, REMOVE_RESOURCES.replace("NODE", name))
    with pytest.raises(FailedError, match="NotFound"):
        await reader.run("kubectl get csidriver plimsoll.dev")
