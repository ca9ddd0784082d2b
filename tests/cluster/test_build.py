"""The binaries are found where the build leaves them, and errors name the fault."""

import re
import sys
from pathlib import Path

import pytest

from tests.cluster import assets, build


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with nothing in it, and no binaries given from outside."""
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "cache"


def put_binaries(folder: Path, *names: str) -> Path:
    """Executable files of these names."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


@pytest.mark.usefixtures("empty_cache")
def test_missing_binary_is_an_error_that_names_the_remedy() -> None:
    """A missing binary is never skipped: the error names the command that builds it."""
    with pytest.raises(assets.MissingBinaryError, match=r"kubectl is not in .*/cache/.*`make test`"):
        assets.binary("kubectl")
    with pytest.raises(assets.MissingBinaryError, match="--all"):
        assets.binary("kubelet")


def test_built_binary_is_found_under_the_hash_of_go_sum(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed `go.sum` has another folder, so a binary built from the old one is not found."""
    put_binaries(assets.build_dir(), *assets.NEEDED)
    assert assets.binary("etcd").is_relative_to(empty_cache)
    monkeypatch.setattr(assets, "MODULE_DIR", tmp_path)
    (tmp_path / "go.sum").write_text("changed")
    with pytest.raises(assets.MissingBinaryError):
        assets.binary("etcd")


def test_given_binaries_are_taken_when_complete(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`KUBEBUILDER_ASSETS` is used if it holds all binaries, and then nothing is built."""
    given = put_binaries(tmp_path / "given", *assets.NEEDED)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    build.ensure(assets.NEEDED)
    assert assets.binary("kube-apiserver") == given / "kube-apiserver"
    assert not empty_cache.exists()


def test_given_binaries_are_left_alone_when_incomplete(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An incomplete `KUBEBUILDER_ASSETS` is named and not used, so no run mixes two Kubernetes."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(put_binaries(tmp_path / "given", "etcd")))
    put_binaries(assets.build_dir(), *assets.NEEDED)
    build.ensure(assets.NEEDED)
    assert assets.binary("etcd").is_relative_to(empty_cache)
    assert "lacks kube-apiserver, kubectl" in capsys.readouterr().err


def test_cache_follows_the_desktop_convention(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a configured folder the cache lies in `XDG_CACHE_HOME`."""
    monkeypatch.delenv("PLIMSOLL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert assets.cache_root() == tmp_path / "plimsoll"


def test_failed_step_shows_its_last_words() -> None:
    """A failed Go command ends the build with its status and its output."""
    failing = [sys.executable, "-c", "import sys; sys.exit('no such module')"]
    with pytest.raises(build.BuildError, match=r"failed \(1\)(.|\n)*no such module"):
        build.watched(failing, str)


def test_progress_counts_what_go_reports(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While a step runs, the log has the number of finished packages; the step's output is returned whole."""
    monkeypatch.setattr(build, "LOG_EVERY_S", 0.05)
    seen = tmp_path / "seen"
    script = (
        "import pathlib, sys, time\n"
        "print('a', 'b', sep='\\n', file=sys.stderr, flush=True)\n"
        f"while not pathlib.Path({str(seen)!r}).exists(): time.sleep(0.01)\n"
        "print('out')\n"
    )

    def describe(lines: int) -> str:
        if lines == 2:
            seen.touch()
        return f"{lines} of 2 packages"

    assert build.watched([sys.executable, "-c", script], describe) == "out\n"
    assert re.search(r"plimsoll: 2 of 2 packages, \d+ s\n", capsys.readouterr().err)


def test_leftovers_of_a_killed_build_are_removed(tmp_path: Path) -> None:
    """A build removes the leftovers of a killed build before it starts, and leaves nothing behind."""
    put_binaries(tmp_path / "partial", "kubectl")
    with build.emptied(tmp_path / "partial") as partial:
        assert list(partial.iterdir()) == []
    assert not partial.exists()


def test_published_parts_have_the_version_of_kubernetes_itself() -> None:
    """Each of the 33 replaced modules has the release of the required Kubernetes."""
    version = assets.kubernetes_version().replace("v1.", "v0.")
    text = (assets.MODULE_DIR / "go.mod").read_text()
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (\S+)$", text, re.MULTILINE)
    assert len(replaced) == 33
    assert all(name == other and found == version for name, other, found in replaced)


def test_fetching_is_tried_again(tmp_path: Path) -> None:
    """A proxy that fails twice costs two pauses. A command that keeps failing ends the build with its output."""
    counts = tmp_path / "counts"
    program = """import sys
with open(sys.argv[1], "a+") as counts:
    counts.write("x")
    counts.seek(0)
    print("fetched") if len(counts.read()) > 2 else sys.exit("no proxy")
"""
    command = [sys.executable, "-c", program, str(counts)]
    assert build.fetched(command, str, pauses_s=(0.0, 0.0)) == "fetched\n"
    counts.unlink()
    with pytest.raises(build.BuildError, match="no proxy"):
        build.fetched(command, str, pauses_s=(0.0,))
