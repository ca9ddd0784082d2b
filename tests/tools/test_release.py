"""A release has the same bytes wherever and whenever it is made, and says what it is."""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from plimsoll.native import MACHINES
from tests.package.installed import INSTALL_S, ROOT, ended
from tools.chart import CHART
from tools.release import (
    NOTES,
    SUMS,
    archive_plugin,
    checked_url,
    krew_manifest,
    notes_of,
    package_chart,
    version_of,
)

URL: Final = "https://releases.example.com/plimsoll"
PYPROJECT: Final = (ROOT / "pyproject.toml").read_text()
VERSION: Final = version_of(PYPROJECT, (CHART / "Chart.yaml").read_text())
HEADING: Final = f"## {VERSION} - 2026-11-28"
WORDS: Final = "The first one.\n"


def test_a_chart_of_other_times_and_modes_is_the_same_package(tmp_path: Path) -> None:
    """The package has the chart's files with README and metadata, and nothing of the folder that it was made in."""
    copy = tmp_path / "a copy"
    shutil.copytree(CHART, copy, copy_function=shutil.copyfile)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    made = []
    for chart, name in ((CHART, "one"), (copy, "other")):
        (tmp_path / name).mkdir()
        made.append(package_chart(chart, tmp_path / name))
    one, other = made
    assert one.name == f"plimsoll-{VERSION}.tgz"
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as tar:
        assert {"plimsoll/README.md", "plimsoll/Chart.yaml", "plimsoll/values.schema.json"} < set(
            tar.getnames()
        )
        text = tar.extractfile("plimsoll/Chart.yaml")
        assert text is not None
        metadata = yaml.safe_load(text)
    assert {"description", "kubeVersion", "keywords", "maintainers", "annotations"} < metadata.keys()


def test_the_plugins_manifest_names_its_archives(tmp_path: Path) -> None:
    """Archives of equal files are equal, and krew finds each by address, SHA-256 and the program in it."""
    wheel, archive = tmp_path / f"plimsoll-{VERSION}-py3-none-any.whl", tmp_path / "one.tar.gz"
    wheel.write_bytes(b"a wheel")
    digest = archive_plugin(wheel, "nats-py==1\n", archive)
    os.utime(wheel, (1, 1))
    assert archive_plugin(wheel, "nats-py==1\n", tmp_path / "other.tar.gz") == digest
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == digest
    assert archive.read_bytes()[4:8] == bytes(4)  # the time in gzip's header
    with tarfile.open(archive) as tar:
        modes = {member.name: member.mode for member in tar}
    assert modes == {
        "LICENSE": 0o644,
        "kubectl-plimsoll": 0o755,
        wheel.name: 0o644,
        "requirements.txt": 0o644,
    }
    plugin = yaml.safe_load(krew_manifest(VERSION, URL, {"amd64": digest, "arm64": "b" * 64}))
    assert plugin["metadata"]["name"] == "plimsoll"
    assert plugin["spec"]["version"] == f"v{VERSION}"
    name = f"{URL}/v{VERSION}/kubectl-plimsoll-{VERSION}-linux"
    assert [(one["uri"], one["sha256"], one["bin"]) for one in plugin["spec"]["platforms"]] == [
        (f"{name}-amd64.tar.gz", digest, "kubectl-plimsoll"),
        (f"{name}-arm64.tar.gz", "b" * 64, "kubectl-plimsoll"),
    ]


def test_notes_are_the_dated_section() -> None:
    """The notes of a version are its own section alone, in the forms of Keep a Changelog."""
    for heading in (HEADING, f"## [{VERSION}] – 2026-11-28"):
        assert (
            notes_of(f"# Changelog\n\n{heading}\n\n- One.\n\n## 0.0.9 - 2026-01-01\n- Old.\n", VERSION)
            == "- One.\n"
        )


@pytest.mark.parametrize(
    ("check", "refusal"),
    [
        (lambda: notes_of("## Unreleased\n\n- One.\n", VERSION), f"no dated section of {VERSION}"),
        (lambda: notes_of(f"## {VERSION}\n\n- One.\n", VERSION), f"no dated section of {VERSION}"),
        (
            lambda: notes_of(f"{HEADING}\n\n## 0.0.9 - 2026-01-01\n", VERSION),
            f"no dated section of {VERSION}",
        ),
        (
            lambda: notes_of(f"## {VERSION}0 - 2026-11-28\n\n- One.\n", VERSION),
            f"no dated section of {VERSION}",
        ),
        (
            lambda: version_of(PYPROJECT, f"version: 9.9.9\nappVersion: {VERSION}\n"),
            "Chart.yaml: version: 9.9.9",
        ),
        (
            lambda: version_of(PYPROJECT, f"version: {VERSION}\nappVersion: 9.9.9\n"),
            "Chart.yaml: appVersion: 9.9.9",
        ),
        (lambda: checked_url("http://example.com"), "URL='http://example.com'"),
        (lambda: checked_url("https://"), "URL='https://'"),
        (lambda: checked_url("https://example.com/a b"), "URL='https://example.com/a b'"),
        (lambda: checked_url(""), "URL=''"),
    ],
)
def test_what_cannot_be_released_is_refused(check: Callable[[], str], refusal: str) -> None:
    """A version without a dated section, two versions, and an address that krew refuses are named with a remedy."""
    with pytest.raises(SystemExit, match=re.escape(refusal) + ".*; remedy: "):
        check()


@pytest.mark.slow
async def test_the_plugin_installs_itself_once(tmp_path: Path) -> None:
    """Two first calls at once install once, and both answer. A later call repairs a broken installation."""
    store, program = tmp_path / "store", tmp_path / "kubectl-plimsoll"
    await asyncio.to_thread(_unpack_plugin, tmp_path, store)
    program.symlink_to(store / "kubectl-plimsoll")  # as krew does
    environment = store / "environment"

    async def call() -> str:
        end = await ended(program, "a b", "c", patience_s=INSTALL_S)
        assert (end.code, end.output) == (0, "a b|c\n"), end
        return end.errors

    installs = "kubectl plimsoll: installing its packages, once\n"
    assert sorted(await asyncio.gather(call(), call())) == ["", installs]
    assert await call() == ""
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").symlink_to(tmp_path / "a Python that was removed")
    assert await call() == installs
    (environment / "complete").unlink()
    (environment / "bin" / "kubectl-plimsoll").write_text("half a program")
    assert await call() == installs


@pytest.mark.slow
async def test_a_plugin_that_cannot_install_says_why(tmp_path: Path) -> None:
    """Without a new Python, or with a package of another hash, the call fails with a remedy, and so does the next."""
    store = tmp_path / "store"
    await asyncio.to_thread(
        _unpack_plugin, tmp_path, store, f"plimsoll @ {_wheel(tmp_path).as_uri()} --hash=sha256:{'0' * 64}\n"
    )
    for _ in range(2):
        end = await ended(store / "kubectl-plimsoll", patience_s=INSTALL_S)
        assert end.code == 1
        assert "its packages cannot be installed, see above; remedy: " in end.errors
    (tmp_path / "bin").mkdir()
    for name in ("dirname", "readlink", "flock"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    end = await ended(store / "kubectl-plimsoll", more={"PATH": str(tmp_path / "bin")})
    assert (end.code, end.errors) == (
        1,
        "kubectl plimsoll: no Python 3.11 or newer is on the PATH; remedy: install one\n",
    )


def _unpack_plugin(place: Path, store: Path, requirements: str = "") -> None:
    """Unpack the plugin as krew does. Its wheel is a small one in the place of ours, which would need an index."""
    archive_plugin(_wheel(place), requirements, place / "plugin.tar.gz")
    store.mkdir()
    subprocess.run(["tar", "--extract", "--file", place / "plugin.tar.gz", "--directory", store], check=True)


def _wheel(place: Path) -> Path:
    """A wheel of our name whose `kubectl-plimsoll` prints its arguments."""
    path, info = place / "plimsoll-0-py3-none-any.whl", "plimsoll-0.dist-info"
    files = {
        "plimsoll_stub.py": "import sys\ndef main():\n    print(*sys.argv[1:], sep='|')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: plimsoll\nVersion: 0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nkubectl-plimsoll = plimsoll_stub:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


# Below: whole releases, with wheels for both machines.
@pytest.fixture(scope="module", name="trees")
def _trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Two clean clones of this tree with a dated section, in other folders, with other times and umasks."""
    place = tmp_path_factory.mktemp("clones")
    trees = []
    for number, name in enumerate(("a", "in a much longer folder/b")):
        old = os.umask(0o077 * number)
        try:
            trees.append(_clone(place / name, time_s=10**9 + 10**6 * number))
        finally:
            os.umask(old)
    yield trees
    shutil.rmtree(place)


def _clone(tree: Path, time_s: int) -> Path:
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT
    )
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
            if os.access(ROOT / name, os.X_OK):
                (tree / name).chmod((tree / name).stat().st_mode | 0o100)
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{HEADING}\n\n{WORDS}")
    git = ("git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.com", "-C", str(tree))
    subprocess.run([*git, "init", "--quiet"], check=True)
    # The environment and the installer are this tree's own. Files that are older than they are ask for no new ones.
    (tree / ".git" / "info" / "exclude").write_text("/.venv\n/.cache\n")
    for name in (".venv", ".cache"):
        if (ROOT / name).exists():
            (tree / name).symlink_to(ROOT / name)
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=All of it"], check=True)
    for path in tree.rglob("*"):
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts:
            os.utime(path, (time_s, time_s))
    return tree


@pytest.fixture(scope="module", name="releases")
def _releases(trees: list[Path]) -> list[Path]:
    """The folders of two releases."""
    for tree in trees:
        done = _make_release(tree)
        assert done.returncode == 0, done
        assert f"Plimsoll {VERSION} is in build/release. Nothing was published." in done.stdout
        assert f"the tag v{VERSION} on {_commit(tree)}" in done.stdout
        assert all(f"  {path.name}\n" in done.stdout for path in (tree / "build" / "release").iterdir())
    return [tree / "build" / "release" for tree in trees]


def _make_release(tree: Path, url: str = URL) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", "release", f"URL={url}"]
    return subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True, check=False)


def _commit(tree: Path) -> str:
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tree, text=True).strip()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_folders_make_the_same_release(releases: list[Path]) -> None:
    """Every file of a release is the same, byte for byte, and the sums are those of all files."""
    one, other = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in releases)
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []
    sums = subprocess.check_output(["sha256sum", "--check", "--strict", SUMS], cwd=releases[0], text=True)
    assert {line.removesuffix(": OK") for line in sums.splitlines()} == one.keys() - {SUMS}
    assert one[NOTES].decode() == WORDS
    kinds = [name.removeprefix("kubectl-").removeprefix(f"plimsoll-{VERSION}") for name in one]
    for machine in MACHINES.values():
        assert f"-py3-none-manylinux2014_{machine}.manylinux_2_17_{machine}.whl" in kinds
        assert f"-{machine}.cdx.json" in kinds


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_tree_that_no_commit_has_is_not_released(trees: list[Path]) -> None:
    """A file that is not committed ends `make release` before anything is built."""
    tree = trees[0]
    (tree / "note.txt").write_text("to be committed")
    done = _make_release(tree)
    (tree / "note.txt").unlink()
    assert done.returncode != 0
    assert "note.txt and maybe more is not committed; remedy: commit it" in done.stderr
