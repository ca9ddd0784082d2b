"""The preloads of an image go on in its container, although our file lies over the image's own."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hook.broker.csi.image_preloads import LINE, ImagePreloads
from tests.hook.broker.csi.conftest import missing_right
from tests.servers.waiting import PATIENCE_S

ENTER = """
cd "$0" && mount --make-rprivate / && mount --bind . . && cd "$0" && mkdir -p usr proc old etc
mount --rbind /usr usr && for part in bin lib lib64 sbin; do ln -sfn usr/$part $part; done
touch etc/ld.so.preload && mount --bind "$1" etc/ld.so.preload
mount --bind "$1" etc/ld.so.preload && pivot_root . old && cd / && exec "$2" /etc/ld.so.preload
"""
"""A container as runc makes it: a root of its own, with our file over its file of preloads."""


@pytest.fixture(name="images")
def _images(tmp_path: Path) -> Iterator[ImagePreloads]:
    if problem := missing_right():
        pytest.skip(problem)
    images = ImagePreloads(tmp_path)
    images.open()
    yield images
    images.close()


def laid_out(root: Path, pod: str) -> Path:
    """The directory of a container's limits, with its file of preloads."""
    directory = root / "limits" / pod / "main"
    directory.mkdir(parents=True)
    (directory / "ld.so.preload").write_bytes(LINE)
    return directory


def open_files(directory: Path) -> int:
    """The number of this process's descriptors of files in a directory; threads open others whenever they like."""
    found = 0
    for number in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(number.readlink()).startswith(f"{directory}/")
    return found


def seen_in(image: Path, preloads: Path) -> str:
    """The file of preloads as the first dynamic program of a container reads it."""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", ENTER, str(image), str(preloads), "/usr/bin/cat"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("own", "kept"), [(None, ""), ("# ours\n/lib/own.so\n", "# ours\n/lib/own.so\n"), ("", ""), ("link", "")]
)
def test_lines_of_the_image_stand_behind_the_library(
    tmp_path: Path, images: ImagePreloads, own: str | None, kept: str
) -> None:
    """The first program reads both. A link is not followed, and an image without the file adds nothing."""
    directory, image = laid_out(tmp_path, "pod"), tmp_path / "image"
    (image / "etc").mkdir(parents=True)
    file = image / "etc" / "ld.so.preload"
    if own == "link":
        (image / "etc" / "secret").write_text("secret")
        file.symlink_to("secret")
    elif own is not None:
        file.write_text(own)
    images.watch(directory)
    for _ in range(2):  # a container that starts again
        assert seen_in(image, directory / "ld.so.preload") == LINE.decode() + kept


def test_a_look_from_outside_settles_nothing(tmp_path: Path, images: ImagePreloads) -> None:
    """A program of the node that reads the file is answered, and the container's first program gets its lines."""
    directory, image = laid_out(tmp_path, "pod"), tmp_path / "image"
    (image / "etc").mkdir(parents=True)
    (image / "etc" / "ld.so.preload").write_text("/lib/own.so\n")
    images.watch(directory)
    assert (
        subprocess.run(["cat", directory / "ld.so.preload"], capture_output=True, check=True).stdout == LINE
    )
    assert seen_in(image, directory / "ld.so.preload").endswith("/lib/own.so\n")


def test_a_broker_that_starts_again_goes_on(tmp_path: Path, images: ImagePreloads) -> None:
    """The next one watches what is there, and a pod that is gone keeps no descriptor."""
    images.close()
    directory, image = laid_out(tmp_path, "pod"), tmp_path / "image"
    (image / "etc").mkdir(parents=True)
    (image / "etc" / "ld.so.preload").write_text("/lib/own.so\n")
    gone = laid_out(tmp_path, "gone")
    images.open()
    assert open_files(gone) == 1
    (gone / "ld.so.preload").unlink()
    images.forget()
    assert open_files(gone) == 0
    assert seen_in(image, directory / "ld.so.preload").endswith("/lib/own.so\n")
