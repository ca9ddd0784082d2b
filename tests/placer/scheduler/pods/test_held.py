"""A pod with a container that asks for a GPU, and that nothing would hold to its line, is refused by name."""

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from placer.core.policies import POLICIES
from placer.extender.demand import extender_demand
from placer.scheduler.profile import NODE_PLUGINS, PodReader
from placer.webhook.core.judgement import AdmissionRules, judge_creation
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.kube.models import Pod, decode_pod
from plimsoll.part.errors import InputError
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import scheduler
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until

Json = dict[str, Any]
ASKING = {"resources": {"limits": {"plimsoll.dev/gpu-memory": "1Gi"}}}
READER = PodReader(POLICIES["headroom"], NODE_PLUGINS)


def bare(*names: str, init: tuple[str, ...] = (), **of_init: object) -> Json:
    """A pod as its author writes it: all these containers and init containers ask for a GPU."""
    spec = {
        "schedulerName": SCHEDULER_NAME,
        "containers": [{"name": name, **ASKING} for name in names] or [{"name": "main"}],
        "initContainers": [{"name": name, **ASKING, **of_init} for name in init],
    }
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec}


def admitted(pod: Json) -> Json:
    """The pod as the webhook leaves it."""
    return judge_creation(pod, AdmissionRules()).pod


def read(pod: Json) -> Pod:
    """The pod as the watch shows it."""
    return decode_pod(json.dumps(pod))


def without_variable(pod: Json) -> None:
    """Take the library's variable and the loader's file away."""
    container = pod["spec"]["containers"][0]
    container["env"] = [one for one in container["env"] if one["name"] != "LD_PRELOAD"]
    container["volumeMounts"] = container["volumeMounts"][:1]


def without_mounts_of_second(pod: Json) -> None:
    """Take the mounts of the second container away; the volumes stay."""
    del pod["spec"]["containers"][1]["volumeMounts"]


def with_pages_of_first(pod: Json) -> None:
    """Give the second container the volume of the first."""
    first, second = pod["spec"]["containers"]
    second["volumeMounts"] = copy.deepcopy(first["volumeMounts"])


def with_empty_pages(pod: Json) -> None:
    """Put a volume without pages in the place of the volume of ours."""
    pod["spec"]["volumes"][0] = {"name": pod["spec"]["volumes"][0]["name"], "emptyDir": {}}


def with_part_of_pages(pod: Json) -> None:
    """Mount a part of the volume where the whole must be."""
    pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"] = "counts"


def with_volume_of_no_container(pod: Json) -> None:
    """Let the volume of ours name no container."""
    del pod["spec"]["volumes"][0]["csi"]["volumeAttributes"]


def with_pages_beneath(pod: Json) -> None:
    """Mount an empty volume over the pages."""
    pod["spec"]["volumes"].append({"name": "x", "emptyDir": {}})
    mount = {"name": "x", "mountPath": "/var/run/plimsoll/limits"}
    pod["spec"]["containers"][0]["volumeMounts"].append(mount)


def without_volumes(pod: Json) -> None:
    """Take everything away that the webhook adds to the first init container."""
    for name in ("volumeMounts", "env"):
        del pod["spec"]["initContainers"][0][name]


def unchanged(_: Json) -> None:
    """Leave the pod as it is."""


def with_part_by_expression(pod: Json) -> None:
    """A part of the pages that a variable may name."""
    pod["spec"]["containers"][0]["volumeMounts"][0]["subPathExpr"] = "lib"


NO_PAGES = "spec.containers[{}].volumeMounts: ['/etc/ld.so.preload', '/run/plimsoll'] have no volume"


@pytest.mark.parametrize(
    ("pod", "change", "problem"),
    [
        (bare("main"), unchanged, "spec.containers[main].volumeMounts: [] have no volume with its pages"),
        (bare(init=("load",)), unchanged, "spec.initContainers[load].volumeMounts: [] have no volume"),
        (
            bare("main", init=("side",), restartPolicy="Always"),
            unchanged,
            "spec.initContainers[side].volumeMounts: [] have no volume",
        ),
        (admitted(bare("a", init=("load",))), without_volumes, "spec.initContainers[load].volumeMounts: []"),
        (
            admitted(bare("a", "b")),
            without_mounts_of_second,
            "spec.containers[b].volumeMounts: [] have no volume",
        ),
        (admitted(bare("a", "b")), with_pages_of_first, NO_PAGES.format("b")),
        (admitted(bare("a")), with_empty_pages, NO_PAGES.format("a")),
        (admitted(bare("a")), with_part_of_pages, NO_PAGES.format("a")),
        (admitted(bare("a")), with_part_by_expression, NO_PAGES.format("a")),
        (admitted(bare("a")), with_volume_of_no_container, NO_PAGES.format("a")),
        (
            admitted(bare("a")),
            with_pages_beneath,
            "spec.containers[a].volumeMounts: '/var/run/plimsoll/limits' lies over Plimsoll's place",
        ),
        (
            admitted(bare("a")),
            without_variable,
            "spec.containers[a].env[LD_PRELOAD]: None names no libplimsoll.so",
        ),
    ],
)
def test_a_container_without_pages_or_library_is_refused(
    pod: Json, change: Callable[[Json], None], problem: str
) -> None:
    """Containers, init containers and sidecars are read alike, one by one; the message has a remedy."""
    changed = copy.deepcopy(pod)
    change(changed)
    with pytest.raises(InputError) as refused:
        READER.understood(read(changed))
    assert str(refused.value).startswith(problem)
    assert "; create the pod anew where the webhook" in str(refused.value) or "remove the m" in str(
        refused.value
    )


def of_the_node() -> Json:
    """A pod with the mounts of docs/webhook.md for nodes whose broker serves no volume."""
    pod = admitted(bare("a"))
    own = {"subPathExpr": "$(POD_UID)/a"}
    mounts: list[Json] = [
        {"name": "limits", "mountPath": "/run/plimsoll/limits/", "readOnly": True, **own},
        {"name": "counts", "mountPath": "/run/plimsoll/counts", **own},
        {"name": "lib", "mountPath": "/opt/lib", "readOnly": True},
    ]
    env = [
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "LD_PRELOAD", "value": "/opt/other.so /opt/lib/libplimsoll.so"},
        next(one for one in pod["spec"]["containers"][0]["env"] if one["name"] == "NVIDIA_VISIBLE_DEVICES"),
    ]
    pod["spec"]["containers"][0] |= {"volumeMounts": mounts, "env": env}
    pod["spec"]["volumes"] = [
        {"name": one["name"], "hostPath": {"path": f"/x/{one['name']}"}} for one in mounts
    ]
    return pod


def with_mounts(*mounts: Json, at: int = 3) -> Json:
    """The webhook's pod with mounts of an empty volume before the mount with this number."""
    pod = copy.deepcopy(admitted(bare("a")))
    pod["spec"]["volumes"].append({"name": "x", "emptyDir": {}})
    pod["spec"]["containers"][0]["volumeMounts"][at:at] = [{"name": "x", **one} for one in mounts]
    return pod


def held_by_file(**fields: Json | str | None) -> Json:
    """The webhook's pod without the variable, whose mount of the loader's file has these fields."""
    pod = copy.deepcopy(admitted(bare("a")))
    container = pod["spec"]["containers"][0]
    container["env"] = [one for one in container["env"] if one["name"] != "LD_PRELOAD"]
    container["volumeMounts"][1] |= fields
    return pod


def held_by_variable(*values: str, pod: Json | None = None) -> Json:
    """A pod without the loader's file, whose container has the variable with these values."""
    pod = copy.deepcopy(pod or admitted(bare("a")))
    container = pod["spec"]["containers"][0]
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["mountPath"][:4] != "/etc"]
    others = [one for one in container["env"] if one["name"] != "LD_PRELOAD"]
    container["env"] = [*others, *({"name": "LD_PRELOAD", "value": one} for one in values)]
    return pod


def visible(*entries: Json) -> Json:
    """The webhook's pod with these entries in the place of the variable of its GPUs."""
    pod = copy.deepcopy(admitted(bare("a")))
    container = pod["spec"]["containers"][0]
    others = [one for one in container["env"] if one["name"] != "NVIDIA_VISIBLE_DEVICES"]
    container["env"] = [*others, *({"name": "NVIDIA_VISIBLE_DEVICES", **one} for one in entries)]
    return pod


def from_node(number: int, mount: Json | None = None, volume: Json | None = None) -> Json:
    """The documented pod without a volume of ours, with other fields in one of its mounts or volumes."""
    pod = of_the_node()
    pod["spec"]["containers"][0]["volumeMounts"][number] |= mount or {}
    if volume is not None:
        pod["spec"]["volumes"][number] = {"name": pod["spec"]["volumes"][number]["name"], **volume}
    return pod


def pod_uid_of_another() -> Json:
    """The documented pod, with a uid that its author wrote."""
    pod = of_the_node()
    pod["spec"]["containers"][0]["env"][0] = {
        "name": "POD_UID",
        "value": "11111111-1111-4111-8111-111111111111",
    }
    return pod


LIBRARY = "/run/plimsoll/lib/libplimsoll.so"
OWN_GPUS = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['gpus.plimsoll.dev/a']"}}}


@pytest.mark.parametrize(
    "fields",
    [
        {"subPath": "limits"},
        {"subPath": "limits/gate"},
        {"subPath": "counts"},
        {"subPath": "lib/libplimsoll.so"},
        {"subPath": "limits/ld.so.preloads"},
        {"subPath": None},
        {"subPath": None, "subPathExpr": "limits/ld.so.preload"},
        {"mountPath": "/etc/ld.so.preloads"},
        {"mountPath": "/var/../etc/ld.so.preload", "name": "other"},
    ],
)
def test_only_the_loaders_own_file_holds(fields: Json) -> None:
    """Another file of the volume at `/etc/ld.so.preload` names no library."""
    with pytest.raises(InputError, match=r"env\[LD_PRELOAD\]: None names no libplimsoll.so"):
        READER.understood(read(held_by_file(**fields)))


@pytest.mark.parametrize(
    "values",
    [
        (LIBRARY + "\n",),
        ("\t" + LIBRARY,),
        ("/a.so\t" + LIBRARY,),
        ("/a.so," + LIBRARY,),
        ("/a.so;" + LIBRARY,),
        ("$(X)" + LIBRARY,),
        (f"$(X:{LIBRARY}:Y)",),
        ("/run/plimsoll/libplimsoll.so",),
        ("/run/plimsoll/limits/libplimsoll.so",),
        ("/var" + LIBRARY,),
        ("/nowhere/libplimsoll.so",),
        ("libplimsoll.so",),
        (LIBRARY[1:],),
        (LIBRARY + "/",),
        (LIBRARY, ""),
    ],
)
def test_a_variable_that_loads_nothing_holds_nothing(values: tuple[str, ...]) -> None:
    """The loader of glibc separates names by blanks and colons alone, and looks for each where it says."""
    with pytest.raises(InputError, match=r"env\[LD_PRELOAD\]: .* names no libplimsoll.so"):
        READER.understood(read(held_by_variable(*values)))


@pytest.mark.parametrize(
    "pod",
    [
        with_mounts({"mountPath": "/var/run"}),
        with_mounts({"mountPath": "/var/run"}, at=0),
        with_mounts({"mountPath": "/var/run/"}, at=1),
        with_mounts({"mountPath": "//var//run"}),
        with_mounts({"mountPath": "/run/../var/run"}),
        with_mounts({"mountPath": "/var/run/plimsoll"}, at=0),
        with_mounts({"mountPath": "/run/x/../plimsoll/lib"}),
        with_mounts({"mountPath": "run/plimsoll/counts"}, at=0),
    ],
)
def test_a_mount_that_hides_ours_is_refused(pod: Json) -> None:
    """`/var/run` is a link to `/run` in most images."""
    with pytest.raises(
        InputError, match=r"lies over Plimsoll's place in the container; (remove the|mount it at)"
    ):
        READER.understood(read(pod))


@pytest.mark.parametrize(
    "pod",
    [
        from_node(0, {"subPathExpr": "$(POD_UID)/other"}),
        from_node(0, {"subPathExpr": "11111111-1111-4111-8111-111111111111/a"}),
        from_node(0, {"subPathExpr": None, "subPath": "$(POD_UID)/a"}),
        from_node(0, {"readOnly": False}),
        from_node(0, {"mountPath": "/var/run/plimsoll/limits"}),
        from_node(0, volume={"hostPath": {"path": "/z/a"}}),
        from_node(0, volume={"hostPath": {"path": "/y/limits"}}),
        from_node(0, volume={"emptyDir": {}}),
        from_node(1, {"subPathExpr": "$(POD_UID)/other"}),
        from_node(1, {"mountPath": "/data"}),
        from_node(1, {"readOnly": True}),
        from_node(1, volume={"emptyDir": {}}),
        pod_uid_of_another(),
    ],
)
def test_pages_of_the_node_are_the_containers_own(pod: Json) -> None:
    """Other places of the node, and the pages of other containers and pods, hold nothing."""
    with pytest.raises(InputError, match="have no volume with its pages"):
        READER.understood(read(pod))


@pytest.mark.parametrize(
    "pod",
    [
        from_node(2, {"mountPath": "/elsewhere"}),
        from_node(2, {"readOnly": False}),
        from_node(2, {"subPathExpr": "$(POD_UID)"}),
        from_node(2, {"mountPath": "/opt/lib/libplimsoll.so"}),
        from_node(2, volume={"emptyDir": {}}),
        from_node(2, volume={"configMap": {"name": "c"}}),
        held_by_variable(LIBRARY, pod=of_the_node()),
        held_by_variable("/opt/lib/../lib/libplimsoll.so", pod=of_the_node()),
    ],
)
def test_the_library_of_the_node_is_mounted_read_only(pod: Json) -> None:
    """A name in the variable loads nothing where no library of the node is mounted."""
    with pytest.raises(InputError, match=r"env\[LD_PRELOAD\]: .* names no libplimsoll.so"):
        READER.understood(read(pod))


@pytest.mark.parametrize(
    "entries",
    [
        (),
        ({"value": "all"},),
        (OWN_GPUS, {"value": "all"}),
        ({"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['gpus.plimsoll.dev/b']"}}},),
        ({"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},),
    ],
)
def test_a_container_that_would_see_other_gpus_is_refused(entries: tuple[Json, ...]) -> None:
    """The device files of other GPUs are kept from a container by this variable alone."""
    with pytest.raises(InputError, match=r"env\[NVIDIA_VISIBLE_DEVICES\]: .* would see other GPUs"):
        READER.understood(read(visible(*entries)))


@pytest.mark.parametrize(
    "pod",
    [
        admitted(bare("a", "b", init=("load",))),
        admitted(bare("a", init=("side",), restartPolicy="Always")),
        of_the_node(),
        from_node(2, {"mountPath": "/opt/lib/libplimsoll.so", "subPath": "libplimsoll.so"}),
        held_by_file(),
        held_by_variable(LIBRARY),
        held_by_variable("", f":/a.so $(X):{LIBRARY}:/b.so"),
        visible({"value": "all"}, OWN_GPUS),
        with_mounts({"mountPath": "/run"}, {"mountPath": "/"}, {"mountPath": "/var"}),
        with_mounts({"mountPath": "/run/plimsoll-x"}),
        bare(),
    ],
)
def test_a_pod_that_is_held_or_asks_for_nothing_is_read(pod: Json) -> None:
    """The webhook's own pods, those that bring their mounts, and pods without a GPU."""
    assert READER.understood(read(pod)).pod.metadata.name == "p"


def test_pods_of_kube_scheduler_are_refused_alike() -> None:
    """The extender answers with the same words, before kube-scheduler chooses a node."""
    theirs = read(bare("main"))
    theirs = msgspec.structs.replace(
        theirs, spec=msgspec.structs.replace(theirs.spec, schedulerName="default-scheduler")
    )
    with pytest.raises(InputError, match="have no volume with its pages"):
        extender_demand(theirs, READER)


def test_an_operator_may_have_such_pods_placed() -> None:
    """With `places_unheld` each of them is read."""
    placing = PodReader(POLICIES["headroom"], NODE_PLUGINS, places_unheld=True)
    for names, init in itertools.product((("a",), ()), (("i",), ())):
        assert placing.understood(read(bare(*names, init=init))).pod.metadata.name == "p"


async def test_the_pod_says_why_it_waits(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that the webhook never saw is not bound; condition and event name the container and the remedy."""
    async with scheduler(apiserver, valkey, namespace, places_unheld=False) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "1Gi"}))
        text = "Pod cannot be scheduled: spec.containers[main].volumeMounts: "
        refused = await world.until_refused("p", text)
        assert "nodeName" not in refused["spec"]
        (event,) = await world.events("p", "FailedScheduling")
        assert event["note"].startswith(text)
        assert event["note"].endswith(
            'write the mounts and variables of docs/webhook.md, "Pods without the webhook".'
        )


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_pod_that_somebody_else_binds_says_that_nothing_holds_it(
    apiserver: ApiServer,
    valkey: EmbeddedServer,
    namespace: str,
    is_named: bool,  # noqa: FBT001 - a row
) -> None:
    """By `nodeName` or by hand, also before this placer led: an event says what the pod lacks."""
    await create_node(apiserver, "n1")
    pod = pod_manifest("p", {MEMORY: "1Gi"}, scheduler="default-scheduler")
    if is_named:
        pod["spec"]["nodeName"] = "n1"
        await create_pod(apiserver, namespace, pod)
    async with scheduler(apiserver, valkey, namespace, places_unheld=False) as world:
        await world.report("n1", 24)
        if not is_named:
            await create_pod(apiserver, namespace, pod)
            bind = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
            await apiserver.must("POST", f"/api/v1/namespaces/{namespace}/pods/p/binding", bind)

        async def is_told() -> bool:
            return bool(await world.events("p", "HeldByNothing"))

        await until(is_told)
        (event,) = await world.events("p", "HeldByNothing")
        assert event["type"] == "Warning"
        assert event["note"].startswith(
            "held by nothing; metadata.annotations[plimsoll.dev/decision] is missing"
        )
        assert "spec.containers[main].volumeMounts: " in event["note"]
