"""The rules about volumes, each by itself, in cases that kube-scheduler's own tests have too."""

from typing import Any

import msgspec
import pytest

from placer.core.mounts import ClaimKey, Disk, Mounts, mounts_of
from placer.scheduler.plugins import volume_zone
from placer.scheduler.plugins.node_volume_limits import exceeds
from placer.scheduler.plugins.volume_binding.pod_volumes import claims_of, find_matching_volume
from placer.scheduler.plugins.volume_restrictions import disks_conflict
from placer.scheduler.plugins.volumes.objects import CsiVolume, can_provision, read_unbound, read_volume
from placer.scheduler.plugins.volumes.store import NodeVolumes, StorageObject, VolumeStore
from plimsoll.kube.models import Pod
from plimsoll.kube.storage_models import Claim, StorageCapacity, StorageClass, Volume

Document = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def claim(
    name: str = "c", meta: Document | None = None, status: Document | None = None, **spec: object
) -> Claim:
    """A claim for 2 GiB."""
    full = {
        "resources": {"requests": {"storage": "2Gi"}},
        "storageClassName": "k",
        "accessModes": ["RWO"],
        **spec,
    }
    metadata = {"name": name, "uid": f"uid-{name}", **(meta or {})}
    return msgspec.convert({"metadata": metadata, "spec": full, "status": status or {}}, Claim)


def volume(
    name: str, size: str = "2Gi", phase: str = "Available", meta: Document | None = None, **spec: object
) -> Volume:
    """A volume of class `k`."""
    full = {"capacity": {"storage": size}, "storageClassName": "k", "accessModes": ["RWO", "RWX"], **spec}
    document = {"metadata": {"name": name, **(meta or {})}, "spec": full, "status": {"phase": phase}}
    return msgspec.json.decode(msgspec.json.encode(document), type=Volume)


def store_of(*objects: StorageObject) -> VolumeStore:
    """A store of these objects."""
    store = VolumeStore(lambda _: None, lambda _: None, lambda _: ())
    for one in objects:
        store.put(one)
    return store


def zonal(zone: str) -> Document:
    """A node affinity."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"required": {"nodeSelectorTerms": [term]}}


@pytest.mark.parametrize(
    ("wanted", "volumes", "found"),
    [
        (claim(), [volume("large", "9Gi"), volume("fit", "3Gi"), volume("small", "1Gi")], "fit"),
        (claim(), [volume("b"), volume("a")], "a"),
        (claim(), [volume("small", "2047Mi")], None),
        (claim(), [volume("other", storageClassName="l")], None),
        (claim(), [volume("released", phase="Released")], None),
        (claim(accessModes=["RWO", "ROX"]), [volume("lacking")], None),
        (claim(accessModes=["RWX"]), [volume("many")], "many"),
        (claim(volumeMode="Block"), [volume("files")], None),
        (claim(volumeMode="Block"), [volume("block", volumeMode="Block")], "block"),
        (claim(volumeAttributesClassName="gold"), [volume("plain")], None),
        (claim(selector={"matchLabels": {"tier": "x"}}), [volume("plain")], None),
        (
            claim(selector={"matchLabels": {"tier": "x"}}),
            [volume("plain"), volume("x", "9Gi", meta={"labels": {"tier": "x"}})],
            "x",
        ),
        (claim(), [volume("deleted", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], None),
        (
            claim(),
            [volume("here", "5Gi", nodeAffinity=zonal("a")), volume("there", nodeAffinity=zonal("b"))],
            "here",
        ),
        (claim(), [volume("taken", claimRef={"namespace": "default", "name": "d"})], None),
        (
            claim(),
            [volume("mine", "9Gi", claimRef={"namespace": "default", "name": "c"}), volume("a")],
            "mine",
        ),
        # Access modes and selector of a reserved volume do not count.
        (
            claim(accessModes=["ROX"], selector={"matchLabels": {"no": "one"}}),
            [
                volume(
                    "mine", "9Gi", "Pending", claimRef={"namespace": "default", "name": "c", "uid": "uid-c"}
                )
            ],
            "mine",
        ),
        (
            claim(),
            [volume("old", claimRef={"namespace": "default", "name": "c", "uid": "another"}), volume("a")],
            "a",
        ),
        # A reserved volume that the node does not reach leaves the claim without a volume.
        (
            claim(),
            [
                volume("mine", claimRef={"namespace": "default", "name": "c"}, nodeAffinity=zonal("b")),
                volume("a"),
            ],
            None,
        ),
    ],
)
def test_smallest_volume_that_suits_is_taken(wanted: Claim, volumes: list[Volume], found: str | None) -> None:
    """A claim gets the volume that is reserved for it, or else the smallest that suits."""
    got = find_matching_volume(read_unbound(wanted), {ZONE: "a"}, store_of(*volumes), ())
    assert (got and got.name) == found


@pytest.mark.parametrize(
    ("labels", "node", "elsewhere"),
    [
        ({ZONE: "a"}, {ZONE: "a"}, False),
        ({ZONE: "a"}, {ZONE: "b"}, True),
        ({ZONE: "a"}, {}, False),
        ({ZONE: "a__b"}, {ZONE: "b"}, False),
        ({ZONE: "a__"}, {ZONE: "b"}, False),
        ({ZONE: "a"}, {"topology.kubernetes.io/region": "r"}, True),
        ({"failure-domain.beta.kubernetes.io/zone": "a"}, {ZONE: "a"}, False),
        ({"failure-domain.beta.kubernetes.io/zone": "a"}, {ZONE: "b"}, True),
        ({ZONE: "a"}, {"failure-domain.beta.kubernetes.io/zone": "a"}, True),
    ],
)
def test_zones_of_a_volume_bind_nodes_that_have_zones(
    labels: dict[str, str], node: dict[str, str], *, elsewhere: bool
) -> None:
    """A label of a volume must meet that of the node. Labels of earlier times meet today's."""
    assert bool(volume_zone.filter_node([labels], node)) == elsewhere


@pytest.mark.parametrize(
    ("used", "attachments", "wanted", "full"),
    [
        (["a"], [], ["b"], False),
        (["a", "b"], [], ["c"], True),
        (["a", "b"], [], ["a"], False),
        (["a"], ["a"], ["b"], False),
        (["a"], ["b"], ["c"], True),
        (["a"], ["b"], ["b"], True),  # as kube-scheduler counts
        ([], [], ["a", "b", "c"], True),
    ],
)
def test_volumes_count_once_against_the_limit(
    used: list[str], attachments: list[str], wanted: list[str], *, full: bool
) -> None:
    """Two volumes of a driver may be attached; those of pods and those attached without a pod count."""
    there = frozenset(CsiVolume("d", one) for one in used)
    node = NodeVolumes(there, {"d": len({*used, *attachments})})
    assert exceeds([CsiVolume("d", one) for one in wanted], node, {"d": 2}) == full
    assert not exceeds([CsiVolume("e", one) for one in wanted], node, {"d": 2})


def test_rules_of_a_volume_about_the_names_of_nodes_are_ignored() -> None:
    """kube-scheduler checks a volume's affinity against labels alone. A term without labels selects every node."""
    name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    by_name = read_volume(volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [name]}}))
    assert by_name.reaches({ZONE: "b"})
    both = {**zonal("a")["required"]["nodeSelectorTerms"][0], **name}
    by_both = read_volume(volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [both]}}))
    assert [by_both.reaches({ZONE: zone}) for zone in "ab"] == [True, False]


def test_disk_is_shared_by_readers_alone() -> None:
    """A disk that one pod of a node writes is closed to all others; readers share."""
    reader = Disk(frozenset({("rbd", "m1", "p", "i"), ("rbd", "m2", "p", "i")}), writes=False)
    writer = Disk(frozenset({("rbd", "m2", "p", "i")}), writes=True)
    for one, other, conflict in ((reader, reader, False), (writer, reader, True), (reader, writer, True)):
        assert disks_conflict([one], [Mounts(disks=(other,))]) == conflict


@pytest.mark.parametrize(
    ("provisioner", "topologies", "allowed"),
    [
        ("d", None, True),
        ("kubernetes.io/no-provisioner", None, False),
        ("d", [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "a"]}]}], True),
        ("d", [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}], False),
        ("d", [{}], False),
    ],
)
def test_class_makes_volumes_in_its_topologies(
    provisioner: str, topologies: object, *, allowed: bool
) -> None:
    """A term without requirements selects no node; no terms select all."""
    document = {"provisioner": provisioner, "allowedTopologies": topologies}
    assert can_provision(msgspec.convert(document, StorageClass), {ZONE: "a"}) == allowed


@pytest.mark.parametrize(
    ("document", "enough"),
    [
        ({"capacity": "2Gi", "nodeTopology": {}}, True),
        ({"capacity": "1Gi", "nodeTopology": {}}, False),
        ({"capacity": "9Gi", "maximumVolumeSize": "1Gi", "nodeTopology": {}}, False),
        ({"capacity": "9Gi"}, False),
        ({"nodeTopology": {}}, False),
        ({"capacity": "9Gi", "nodeTopology": {"matchLabels": {ZONE: "b"}}}, False),
        ({"capacity": "9Gi", "nodeTopology": {"matchLabels": {ZONE: "a"}}}, True),
    ],
)
def test_free_space_must_be_large_enough_on_the_node(document: Document, *, enough: bool) -> None:
    """A single capacity object must have the space for the whole claim, in a topology that the node is in."""
    store = store_of(msgspec.convert({"storageClassName": "k", **document}, StorageCapacity))
    assert store.has_space(read_unbound(claim()), {ZONE: "a"}) == enough


BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        (
            [claim(status={"phase": "Lost"}, volumeName="gone")],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "gone"',
        ),
        (
            [claim(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            'persistentvolumeclaim "c" is being deleted',
        ),
        ([claim(storageClassName="now")], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim(storageClassName="none")], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim(volumeName="v")], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim(meta=BOUND, volumeName="gone")], 'persistentvolume "gone" not found'),
        (
            [claim(meta=BOUND, volumeName="moved")],
            (
                'persistentvolume "moved" has the source gcePersistentDisk, which the plimsoll scheduler does not '
                "handle; make the volume anew for its CSI driver, or let kube-scheduler place the pod"
            ),
        ),
        ([claim(meta=BOUND, volumeName="v")], None),
        ([claim()], None),
    ],
)
def test_pod_that_waits_for_its_claim_says_why(claims: list[Claim], problem: str | None) -> None:
    """The texts are kube-scheduler's own."""
    store = store_of(*claims, volume("v"), volume("moved", gcePersistentDisk={"pdName": "x"}))
    for name, mode in (("k", "WaitForFirstConsumer"), ("now", "Immediate")):
        document = {"metadata": {"name": name}, "provisioner": "d", "volumeBindingMode": mode}
        store.put(msgspec.convert(document, StorageClass))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": {"volumes": volumes}}, Pod)
    assert claims_of(pod, mounts_of(pod), store).problem == problem


def test_mounts_name_each_claim_once() -> None:
    """An ephemeral volume's claim has the names of pod and volume; other volumes tie the pod to no node."""
    volumes: list[Document] = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
        {"name": "scratch", "ephemeral": {}},
        {"name": "token", "projected": {}},
    ]
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "n"}, "spec": {"volumes": volumes}}, Pod)
    assert [use.claim for use in mounts_of(pod).claims] == [ClaimKey("n", "c"), ClaimKey("n", "p-scratch")]
    assert not mounts_of(msgspec.convert({"spec": {"volumes": volumes[-1:]}}, Pod))
