"""The rules about volumes, each by itself, in cases that kube-scheduler's own tests have too."""

import msgspec
import pytest

from placer.core.mounts import ClaimKey, Disk, Mounts, mounts_of
from placer.scheduler.plugins import volume_zone
from placer.scheduler.plugins.node_volume_limits import exceeds
from placer.scheduler.plugins.volume_binding import claims_of, find_matching_volume
from placer.scheduler.plugins.volume_restrictions import disks_conflict
from placer.scheduler.plugins.volumes.objects import CsiVolume, can_provision, read_unbound, read_volume
from placer.scheduler.plugins.volumes.store import NodeVolumes, StorageObject, VolumeStore
from plimsoll.kube.models import Pod
from plimsoll.kube.storage_models import Claim, StorageCapacity, Volume
from tests.placer.scheduler.plugins.volumes.objects import (
    ZONE,
    Document,
    bound_claim,
    claim_of,
    class_of,
    no_volumes,
    on_nodes_with,
    user_of,
    using,
    volume_of,
)


def store_of(*objects: StorageObject) -> VolumeStore:
    """A store of these objects."""
    store = no_volumes().store
    for one in objects:
        store.put(one)
    return store


def zonal(zone: str) -> Document:
    """The affinity of a volume in a zone."""
    return on_nodes_with(ZONE, zone)


@pytest.mark.parametrize(
    ("wanted", "volumes", "found"),
    [
        (claim_of(), [volume_of("large", "9Gi"), volume_of("fit", "3Gi"), volume_of("small", "1Gi")], "fit"),
        (claim_of(), [volume_of("b"), volume_of("a")], "a"),
        (claim_of(), [volume_of("small", "2047Mi")], None),
        (claim_of(), [volume_of("other", storageClassName="l")], None),
        (claim_of(), [volume_of("released", phase="Released")], None),
        (claim_of(accessModes=["RWO", "ROX"]), [volume_of("lacking")], None),
        (claim_of(accessModes=["RWX"]), [volume_of("many")], "many"),
        (claim_of(volumeMode="Block"), [volume_of("files")], None),
        (claim_of(volumeMode="Block"), [volume_of("block", volumeMode="Block")], "block"),
        (claim_of(volumeAttributesClassName="gold"), [volume_of("plain")], None),
        (claim_of(selector={"matchLabels": {"tier": "x"}}), [volume_of("plain")], None),
        (
            claim_of(selector={"matchLabels": {"tier": "x"}}),
            [volume_of("plain"), volume_of("x", "9Gi", meta={"labels": {"tier": "x"}})],
            "x",
        ),
        (claim_of(), [volume_of("deleted", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], None),
        (
            claim_of(),
            [volume_of("here", "5Gi", nodeAffinity=zonal("a")), volume_of("there", nodeAffinity=zonal("b"))],
            "here",
        ),
        (claim_of(), [volume_of("taken", claimRef={"namespace": "default", "name": "d"})], None),
        (
            claim_of(),
            [volume_of("mine", "9Gi", claimRef={"namespace": "default", "name": "c"}), volume_of("a")],
            "mine",
        ),
        # Access modes and selector of a reserved volume do not count.
        (
            claim_of(accessModes=["ROX"], selector={"matchLabels": {"no": "one"}}),
            [
                volume_of(
                    "mine", "9Gi", "Pending", claimRef={"namespace": "default", "name": "c", "uid": "uid-c"}
                )
            ],
            "mine",
        ),
        (
            claim_of(),
            [
                volume_of("old", claimRef={"namespace": "default", "name": "c", "uid": "another"}),
                volume_of("a"),
            ],
            "a",
        ),
        # A reserved volume that the node does not reach leaves the claim without a volume.
        (
            claim_of(),
            [
                volume_of("mine", claimRef={"namespace": "default", "name": "c"}, nodeAffinity=zonal("b")),
                volume_of("a"),
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
    by_name = read_volume(volume_of("v", nodeAffinity={"required": {"nodeSelectorTerms": [name]}}))
    assert by_name.reaches({ZONE: "b"})
    both = {**zonal("a")["required"]["nodeSelectorTerms"][0], **name}
    by_both = read_volume(volume_of("v", nodeAffinity={"required": {"nodeSelectorTerms": [both]}}))
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
    storage_class = class_of(provisioner=provisioner, allowedTopologies=topologies)
    assert can_provision(storage_class, {ZONE: "a"}) == allowed


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
    assert store.has_space(read_unbound(claim_of()), {ZONE: "a"}) == enough


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        (
            [claim_of(status={"phase": "Lost"}, volumeName="gone")],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "gone"',
        ),
        (
            [claim_of(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            'persistentvolumeclaim "c" is being deleted',
        ),
        ([claim_of(storageClassName="now")], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim_of(storageClassName="none")], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim_of(volumeName="v")], "pod has unbound immediate PersistentVolumeClaims"),
        ([bound_claim("c", "gone")], 'persistentvolume "gone" not found'),
        (
            [bound_claim("c", "moved")],
            (
                'persistentvolume "moved" has the source gcePersistentDisk, which the plimsoll scheduler does not '
                "handle; make the volume anew for its CSI driver, or let kube-scheduler place the pod"
            ),
        ),
        ([bound_claim("c", "v")], None),
        ([claim_of()], None),
    ],
)
def test_pod_that_waits_for_its_claim_says_why(claims: list[Claim], problem: str | None) -> None:
    """The texts are kube-scheduler's own."""
    moved = volume_of("moved", gcePersistentDisk={"pdName": "x"})
    store = store_of(*claims, volume_of("v"), moved, class_of(), class_of("now", mode="Immediate"))
    pod = user_of("p", "c")
    assert claims_of(pod, mounts_of(pod), store).problem == problem


def test_mounts_name_each_claim_once() -> None:
    """An ephemeral volume's claim has the names of pod and volume; other volumes tie the pod to no node."""
    volumes = [
        *using("c"),
        *using("c"),
        {"name": "scratch", "ephemeral": {}},
        {"name": "token", "projected": {}},
    ]
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "n"}, "spec": {"volumes": volumes}}, Pod)
    assert [use.claim for use in mounts_of(pod).claims] == [ClaimKey("n", "c"), ClaimKey("n", "p-scratch")]
    assert not mounts_of(msgspec.convert({"spec": {"volumes": volumes[-1:]}}, Pod))
