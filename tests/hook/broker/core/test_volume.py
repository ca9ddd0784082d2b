"""The mounts of an inline volume, from the kernel's table alone."""

from pathlib import PurePosixPath
from typing import Final

import pytest

from hook.broker.core.ids import ContainerKey
from hook.broker.core.volume import (
    Mount,
    container_binds,
    counts_of,
    counts_source,
    covering,
    inside,
    missing_binds,
    read_mounts,
    target_of,
)
from plimsoll.ids import ContainerName, PodUid
from plimsoll.part.errors import InputError

KUBELET: Final = PurePosixPath("/var/lib/kubelet")
TARGET: Final = KUBELET / "pods/u-1/volumes/kubernetes.io~csi/plimsoll/mount"
BINDS: Final = container_binds(
    TARGET,
    tree=PurePosixPath("/stage/library/v1"),
    limits=PurePosixPath("/stage/limits/u-1/main"),
    page=PurePosixPath("/counts/u-1/main"),
)


def test_the_kernels_table_is_read() -> None:
    """Optional fields, escaped characters and lines of a later kernel are no trouble."""
    table = (
        "24 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n"
        "36 24 0:33 /a\\040b /mnt/with\\040space\\134 ro,nosuid - tmpfs plimsoll:u-1/main rw,size=512k\n"
        "a line of another kind\n"
    )
    assert read_mounts(table) == (
        Mount("/", "/dev/vda", "ext4", is_shared=True),
        Mount("/mnt/with space\\", "plimsoll:u-1/main", "tmpfs"),
    )
    assert read_mounts(table, "u-1") == (Mount("/mnt/with space\\", "plimsoll:u-1/main", "tmpfs"),)


def test_each_cut_short_volume_is_completed() -> None:
    """After a crash between any two mounts, the missing ones are made, and the limits are always the last."""
    parts = [str(bind.target.relative_to(TARGET)) for bind in BINDS]
    assert parts == [".", "counts", "limits"]
    made: list[Mount] = []
    for place, bind in enumerate(BINDS):
        assert missing_binds(BINDS, made) == BINDS[place:]
        made.append(Mount(str(bind.target), "x", "ext4"))
    assert not missing_binds(BINDS, made)


def test_mounts_are_taken_away_inside_out() -> None:
    """The last mount goes first, one that lies twice goes twice, and a neighbour with a like name stays."""
    points = ["/a", "/a/b", "/ab", "/a", "/a/b/c"]
    assert inside(PurePosixPath("/a"), [Mount(point, "x", "ext4") for point in points]) == (
        "/a/b/c",
        "/a",
        "/a/b",
        "/a",
    )


def test_the_nearest_mount_covers_a_directory() -> None:
    """The deepest mount above counts, and of two in one place the upper one."""
    table = read_mounts(
        "1 0 0:1 / / rw shared:1 - ext4 a rw\n"
        "2 1 0:2 / /var rw - ext4 b rw\n"
        "3 2 0:3 / /var rw master:1 shared:7 - ext4 c rw\n"
        "4 1 0:4 / /var/library rw - ext4 d rw\n"
    )
    assert covering(PurePosixPath("/var/lib"), table) == Mount("/var", "c", "ext4", is_shared=True)
    assert covering(PurePosixPath("/varlib"), table) == Mount("/", "a", "ext4", is_shared=True)


def test_counts_are_found_by_their_source() -> None:
    """A tmpfs of ours names its container; other mounts, and those in other places, are not ours."""
    container = ContainerKey(PodUid("u-1"), ContainerName("main"))
    table = [
        Mount("/counts/u-1/main", counts_source(container), "tmpfs"),
        Mount("/counts/u-2/main", "plimsoll:u-2/main", "ext4"),
        Mount("/counts/u-3/main", "tmpfs", "tmpfs"),
        Mount("/elsewhere/u-4/main", "plimsoll:u-4/main", "tmpfs"),
    ]
    assert counts_of(table, PurePosixPath("/counts")) == {container: "/counts/u-1/main"}


def test_the_path_names_the_pod() -> None:
    """The pod is that of the kubelet's own directory."""
    assert target_of(str(TARGET), KUBELET).pod == "u-1"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        str(KUBELET),
        str(TARGET.parent),
        str(TARGET / "deeper"),
        str(TARGET).replace("kubernetes.io~csi", "kubernetes.io~empty-dir"),
        str(TARGET).replace("/u-1/", "/../"),
        str(TARGET).replace("/u-1/", "/.hidden/"),
        str(TARGET).replace("/u-1/", "/with space/"),
        str(TARGET).replace("/var/lib/kubelet", "/data/kubelet"),
        f"x{TARGET}",
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    """A path that is no volume of a pod of this kubelet is refused, with the setting to mend."""
    with pytest.raises(InputError, match=r"PLIMSOLL_BROKER_KUBELET_ROOT|the kubelet's own path"):
        target_of(path, KUBELET)
