"""A pod gets what its containers need, once, and nothing of its author's is lost unseen."""

import pytest

from placer.webhook.core.judgement import AdmissionRules, GpuAccess
from plimsoll.dialects import Json
from plimsoll.part.errors import InputError
from tests.placer.webhook.core.pods import GPU, MEMORY, SHARE, container, gpu_pod, judged, pod, variables

LIBRARY = "/run/plimsoll/lib/libplimsoll.so"
REFERENCE = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['gpus.plimsoll.dev/main']"}}
PRELOADS: Json = {
    "name": "plimsoll",
    "mountPath": "/etc/ld.so.preload",
    "subPath": "limits/ld.so.preload",
    "readOnly": True,
}
MOUNTS: list[Json] = [{"name": "plimsoll", "mountPath": "/run/plimsoll"}, PRELOADS]


def volume(name: str, container: str) -> Json:
    """A container's volume, as the pod has it."""
    attributes = {"container": container}
    return {"name": name, "csi": {"driver": "plimsoll.dev", "readOnly": True, "volumeAttributes": attributes}}


def test_a_pod_with_two_resource_lines_gets_all_it_needs() -> None:
    """Its GPUs, its library, its pages, its volume, its runtime class, and the number of its GPUs."""
    spec = judged(gpu_pod()).pod["spec"]
    [main] = spec["containers"]
    assert variables(main) == {
        "NVIDIA_VISIBLE_DEVICES": {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": REFERENCE},
        "LD_PRELOAD": {"name": "LD_PRELOAD", "value": LIBRARY},
    }
    assert main["volumeMounts"] == MOUNTS
    assert main["resources"] == {
        "limits": {MEMORY: "8Gi", SHARE: 30, GPU: "1"},
        "requests": {GPU: "1"},
    }
    assert spec["volumes"] == [volume("plimsoll", "main")]
    assert spec["runtimeClassName"] == "nvidia"


def test_containers_without_gpus_see_none() -> None:
    """A sidecar, an init container and a pod without any GPU get `void`, and nothing else."""
    found = judged(
        pod(container(limits={MEMORY: "1Gi"}), container("side"), initContainers=[container("init")])
    )
    spec = found.pod["spec"]
    for one in (spec["containers"][1], spec["initContainers"][0]):
        assert one["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
        assert "volumeMounts" not in one
    plain = judged(pod(container())).pod["spec"]
    assert plain["containers"][0]["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert plain.keys() == {"schedulerName", "containers"}


def test_an_init_container_with_gpus_gets_its_own_pages() -> None:
    """Each container has a volume with its own pages, init containers and sidecars as well."""
    sidecar = container("side", limits={MEMORY: "1Gi"}, restartPolicy="Always")
    spec = judged(pod(container(limits={GPU: 1}), initContainers=[sidecar, container("init")])).pod["spec"]
    side, init = spec["initContainers"]
    assert spec["volumes"] == [volume("plimsoll", "main"), volume("plimsoll-2", "side")]
    assert side["volumeMounts"] == [{**one, "name": "plimsoll-2"} for one in MOUNTS]
    assert "gpus.plimsoll.dev/side" in str(variables(side)["NVIDIA_VISIBLE_DEVICES"])
    assert side["resources"]["limits"][GPU] == "1"
    assert init["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def test_all_gpus_are_taken_from_a_container_and_its_author_is_told() -> None:
    """A container that sets the variable itself, even twice, has it replaced, with a remark."""
    env = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"},
        {"name": "OTHER", "value": "x"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
    ]
    found = judged(pod(container(env=env)))
    [main] = found.pod["spec"]["containers"]
    assert main["env"] == [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        {"name": "OTHER", "value": "x"},
    ]
    assert found.remarks == (
        "spec.containers[main].env[NVIDIA_VISIBLE_DEVICES] was replaced: Plimsoll sets it",
    )


@pytest.mark.parametrize(
    "fields", [{"limits": {"nvidia.com/gpu": 1}}, {"resources": {"claims": [{"name": "gpu"}]}}]
)
def test_gpus_of_another_driver_are_left_alone(fields: dict[str, dict[str, object]]) -> None:
    """NVIDIA's device plugin sets the variable, and a variable of the pod would win over it."""
    given = pod(container(**fields))  # type: ignore[arg-type] # limits or resources
    if "claims" in str(fields):
        with pytest.raises(InputError, match="claims"):
            judged(given)
    else:
        assert judged(given).pod is given


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", LIBRARY),
        ("/a.so", f"{LIBRARY}:/a.so"),
        (" /a.so  /b.so:/c.so ", f"{LIBRARY}:/a.so:/b.so:/c.so"),
        (f"/a.so:{LIBRARY}", f"/a.so:{LIBRARY}"),
        ("$(ELSEWHERE)", f"{LIBRARY}:$(ELSEWHERE)"),
        (f"{LIBRARY}\n", LIBRARY),
        (f"/a.so\t{LIBRARY}\n", f"{LIBRARY}:/a.so"),
        (f"/a.so,{LIBRARY}", f"{LIBRARY}:/a.so,{LIBRARY}"),
        (f"$(X){LIBRARY}", f"{LIBRARY}:$(X){LIBRARY}"),
    ],
)
def test_other_preloads_stay_behind_the_library(value: str, expected: str) -> None:
    """An author's preloads are kept, as under `plimsoll run`; a value with the library stays as it is."""
    found = judged(gpu_pod(env=[{"name": "LD_PRELOAD", "value": value}]))
    assert variables(found.pod["spec"]["containers"][0])["LD_PRELOAD"]["value"] == expected


def test_a_preload_from_elsewhere_is_refused() -> None:
    """The library cannot be added to a value that only the kubelet reads."""
    reference = {"configMapKeyRef": {"name": "c", "key": "k"}}
    with pytest.raises(InputError, match=r"spec.containers\[main\].env\[LD_PRELOAD\].*write its value"):
        judged(gpu_pod(env=[{"name": "LD_PRELOAD", "valueFrom": reference}]))


@pytest.mark.parametrize(
    "path",
    [
        "/run/plimsoll/limits",
        "/run/plimsoll/limits/limits",
        "/run/plimsoll",
        "/var/run/plimsoll/../plimsoll/lib/",
    ],
)
def test_nothing_else_is_mounted_in_our_place(path: str) -> None:
    """A mount of the author's over a page or the library would put limits of their own in its place."""
    mount = {"name": "mine", "mountPath": path}
    given = pod(container(limits={GPU: 1}, volumeMounts=[mount]), volumes=[{"name": "mine", "emptyDir": {}}])
    with pytest.raises(InputError, match=r"spec.containers\[main\].volumeMounts\[mine\].*remove the mount"):
        judged(given)


def test_other_mounts_and_volumes_stay() -> None:
    """The author's own mounts and volumes keep their places before ours."""
    mine, data = {"name": "data", "mountPath": "/run"}, {"name": "data", "emptyDir": {}}
    spec = judged(pod(container(limits={GPU: 1}, volumeMounts=[mine]), volumes=[data])).pod["spec"]
    assert spec["containers"][0]["volumeMounts"] == [mine, *MOUNTS]
    assert [one["name"] for one in spec["volumes"]] == ["data", "plimsoll"]


@pytest.mark.parametrize("path", ["/var/run", "/run/../var//run/"])
@pytest.mark.parametrize("volumes", [[], [volume("lines", "main")]])
def test_a_mount_that_may_hide_ours_is_refused(path: str, volumes: list[Json]) -> None:
    """`/var/run` is a link to `/run` in most images, and not every runtime keeps the pod's order of mounts."""
    mine, lines = {"name": "mine", "mountPath": path}, {"name": "lines", "mountPath": "/run/plimsoll"}
    mounts = [lines, mine] if volumes else [mine]
    given = pod(
        container(limits={GPU: 1}, volumeMounts=mounts), volumes=[*volumes, {"name": "mine", "emptyDir": {}}]
    )
    with pytest.raises(InputError, match=r"volumeMounts\[mine\].* may hide it.*; mount it at /run, to which"):
        judged(given)


@pytest.mark.parametrize("path", ["/etc/ld.so.preload", "/etc", "//etc/../etc/"])
def test_the_authors_own_preloads_stay_and_their_author_is_told(path: str) -> None:
    """The runtime could not make a place for our file in a volume of the author's that is read-only."""
    mine, config = {"name": "mine", "mountPath": path}, {"name": "mine", "configMap": {"name": "mine"}}
    found = judged(pod(container(limits={GPU: 1}, volumeMounts=[mine]), volumes=[config]))
    assert found.pod["spec"]["containers"][0]["volumeMounts"] == [mine, MOUNTS[0]]
    [remark] = found.remarks
    assert remark.startswith(
        "spec.containers[main].volumeMounts[mine] has /etc/ld.so.preload: programs without the"
    )
    assert remark.endswith(f"start without the library unless that file names {LIBRARY}")
    assert judged(found.pod).pod is found.pod


def test_a_volume_of_the_authors_with_our_driver_is_used() -> None:
    """A container whose volume has another name gets no second one, and a wrong mount of it is mended."""
    wrong = {"name": "lines", "mountPath": "/run/plimsoll/", "readOnly": True}
    given = pod(container(limits={GPU: 1}, volumeMounts=[wrong]), volumes=[volume("lines", "main")])
    spec = judged(given).pod["spec"]
    assert spec["volumes"] == [volume("lines", "main")]
    assert spec["containers"][0]["volumeMounts"] == [{**one, "name": "lines"} for one in MOUNTS]


def test_a_volume_of_no_container_is_refused() -> None:
    """A volume with our driver that names no container would hold up the pod on its node."""
    given = pod(container(limits={GPU: 1}), volumes=[{"name": "lines", "csi": {"driver": "plimsoll.dev"}}])
    with pytest.raises(InputError, match=r"^spec.volumes\[lines\].csi.volumeAttributes\[container\]"):
        judged(given)


def test_a_volume_of_the_authors_keeps_its_name() -> None:
    """Another volume with the name that ours would have is no trouble."""
    mine = {"name": "plimsoll", "emptyDir": {}}
    spec = judged(pod(container(limits={GPU: 1}), volumes=[mine])).pod["spec"]
    assert spec["volumes"] == [mine, volume("plimsoll-2", "main")]
    assert spec["containers"][0]["volumeMounts"] == [{**one, "name": "plimsoll-2"} for one in MOUNTS]


def test_the_authors_runtime_class_stays() -> None:
    """A class that the author chose is kept, with a remark."""
    given = gpu_pod()
    given["spec"]["runtimeClassName"] = "nvidia-cdi"
    found = judged(given)
    assert found.pod["spec"]["runtimeClassName"] == "nvidia-cdi"
    assert found.remarks == ("spec.runtimeClassName: nvidia-cdi stays; GPUs appear by nvidia here",)


def test_runtime_classes_by_setting() -> None:
    """Where the default runtime is NVIDIA's, pods get no class; another class may be named."""
    spec = judged(gpu_pod(), AdmissionRules(access=GpuAccess.DEFAULT_RUNTIME)).pod["spec"]
    assert "runtimeClassName" not in spec
    assert judged(gpu_pod(), AdmissionRules(runtime_class="gpu")).pod["spec"]["runtimeClassName"] == "gpu"


def test_a_cluster_whose_runtimes_read_no_variable_is_refused_by_name() -> None:
    """With native CDI or NRI and no runtime class, a pod with GPUs would start without them."""
    rules = AdmissionRules(access=GpuAccess.NONE)
    with pytest.raises(InputError, match="NVIDIA_VISIBLE_DEVICES; ask an operator for a RuntimeClass"):
        judged(gpu_pod(), rules)
    assert judged(pod(container()), rules).pod["spec"]["containers"][0]["env"]


def test_a_privileged_container_is_remarked() -> None:
    """A privileged container sees all devices of its node, whatever its variable says."""
    assert judged(gpu_pod(securityContext={"privileged": True})).remarks == (
        "spec.containers[main] is privileged: it can open every GPU of its node",
    )


def test_a_count_is_not_filled_in_twice() -> None:
    """A container with a number of GPUs, in limits or in requests, keeps its resources."""
    for resources in ({"limits": {MEMORY: "2Gi", GPU: 2}}, {"limits": {GPU: 1}}):
        [main] = judged(pod(container(resources=resources))).pod["spec"]["containers"]
        assert main["resources"] == resources


def test_changes_of_other_webhooks_in_between_are_kept() -> None:
    """A pod to which another webhook added variables, mounts and a sidecar gets only what that sidecar lacks."""
    done = judged(gpu_pod()).pod
    [main] = done["spec"]["containers"]
    main = {
        **main,
        "env": [
            {"name": "LD_PRELOAD", "value": f"/mesh.so:{LIBRARY}"},
            *main["env"][:1],
            {"name": "X", "value": "1"},
        ],
        "volumeMounts": [{"name": "token", "mountPath": "/token", "readOnly": True}, *main["volumeMounts"]],
    }
    changed = {**done, "spec": {**done["spec"], "containers": [main, container("mesh")]}}
    found = judged(changed).pod["spec"]["containers"]
    assert found[0] is main
    assert found[1]["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
