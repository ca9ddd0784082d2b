"""Lays out a release in `build/release`, and says what it would publish. It publishes nothing.

    python -m tools.release URL

`make release` runs it after `make wheel`. What always holds: the same commit gives the same bytes, in any folder and
at any time, so that anybody can check published files. Therefore all files in archives have one time, which
`SOURCE_DATE_EPOCH` sets as it does in wheels.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import string
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Final

import yaml
from hatchling.builders.utils import get_reproducible_timestamp

from plimsoll.native import MACHINES
from tools.chart import CHART, DEPLOY, ROOT
from tools.sbom import NAME, exported

OUT: Final = ROOT / "build" / "release"
WHEELS: Final = ROOT / "build" / "wheels"
PACKED: Final = ROOT / "build" / "packed"
SUMS: Final = "SHA256SUMS"
NOTES: Final = "notes.md"
KREW: Final = DEPLOY / "krew"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Each machine of a wheel, as Kubernetes and krew call it."""


def version_of(pyproject: str, chart: str) -> str:
    """The version of the project.

    Args:
        pyproject: the text of `pyproject.toml`.
        chart: the text of `Chart.yaml`.

    Raises:
        SystemExit: the chart has another one.
    """
    version = str(tomllib.loads(pyproject)["project"]["version"])
    metadata = yaml.safe_load(chart)
    for field in ("version", "appVersion"):
        if str(metadata[field]) != version:
            raise SystemExit(
                f"deploy/chart/Chart.yaml: {field}: {metadata[field]} is not the {version} of pyproject.toml; "
                "remedy: write the same version in both"
            )
    return version


def notes_of(changelog: str, version: str) -> str:
    """The section of a version in the changelog, without its heading.

    Raises:
        SystemExit: there is no such section, or it has no date.
    """
    dated = rf"^## \[?{re.escape(version)}\]? [-–—] \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"
    found = re.search(dated, changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise SystemExit(
            f"CHANGELOG.md has no dated section of {version}; remedy: write one under `## {version} - YYYY-MM-DD`"
        )
    return found[1].strip() + "\n"


def checked_url(url: str) -> str:
    """The address below which the files would be published.

    Raises:
        SystemExit: krew would refuse it.
    """
    if not re.fullmatch(r"https://[^\s/?#$]+(/[^\s?#$]*)?", url):
        raise SystemExit(
            f"URL='{url}': krew takes plugins by https alone; remedy: make release URL=https://…"
        )
    return url.rstrip("/")


def package_chart(chart: Path, folder: Path) -> Path:
    """Package a chart as `helm package` does, from copies of its files with one time; Helm sets the modes."""
    import helm_python as helm  # noqa: PLC0415 - a library of 240 MB

    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "plimsoll")
        shutil.copytree(chart, copy, copy_function=shutil.copyfile)
        for path in copy.rglob("*"):
            os.utime(path, (get_reproducible_timestamp(),) * 2)
        return Path(helm.package(copy, destination=folder))


def archive_plugin(wheel: Path, requirements: str, archive: Path) -> str:
    """Write the archive of `kubectl plimsoll` for krew; returns its SHA-256.

    Args:
        wheel: the wheel for the archive's machine.
        requirements: the locked packages with their hashes, as pip reads them.
        archive: the file to write, a `.tar.gz`.
    """
    files = {
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        "kubectl-plimsoll": (KREW / "kubectl-plimsoll").read_bytes(),
        wheel.name: wheel.read_bytes(),
        "requirements.txt": requirements.encode(),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), get_reproducible_timestamp()
            member.mode = 0o755 if name == "kubectl-plimsoll" else 0o644
            tar.addfile(member, io.BytesIO(content))
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return _digest(archive)


def krew_manifest(version: str, url: str, digests: dict[str, str]) -> str:
    """The plugin's manifest, with the SHA-256 of each architecture's archive."""
    template = string.Template((KREW / "plimsoll.yaml").read_text())
    filled = template.substitute(digests, version=version, url=url)
    return "".join(line for line in filled.splitlines(keepends=True) if not line.startswith("#"))


def sums_of(folder: Path) -> str:
    """The SHA-256 of each file of a folder, as `sha256sum --check` reads them."""
    return "".join(f"{_digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()))


def lay_out(version: str, url: str, notes: str) -> None:
    """Write all files of a release into `OUT`.

    Raises:
        SystemExit: there is no wheel of this version for a machine.
    """
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    requirements = exported("--no-emit-project", "--no-header", "--format", "requirements-txt")
    digests = {}
    for machine in MACHINES.values():
        wheels = list(WHEELS.glob(f"plimsoll-{version}-*_{machine}.whl"))
        if len(wheels) != 1:
            raise SystemExit(f"build/wheels has no wheel of {version} for {machine}; remedy: make release")
        shutil.copyfile(wheels[0], OUT / wheels[0].name)
        shutil.copyfile(PACKED / machine / NAME, OUT / f"plimsoll-{version}-{machine}.cdx.json")
        architecture = ARCHITECTURES[machine]
        archive = OUT / f"kubectl-plimsoll-{version}-linux-{architecture}.tar.gz"
        digests[architecture] = archive_plugin(wheels[0], requirements, archive)
    package_chart(CHART, OUT)
    (OUT / "plimsoll.yaml").write_text(krew_manifest(version, url, digests))
    (OUT / NOTES).write_text(notes)
    (OUT / SUMS).write_text(sums_of(OUT))


def would_publish(version: str, url: str, commit: str) -> str:
    """A list of the release's files, for people."""
    files = "".join(f"    {path.stat().st_size:>10,}  {path.name}\n" for path in sorted(OUT.iterdir()))
    return f"""Plimsoll {version} is in build/release. Nothing was published. To publish it would be:
  the tag v{version} on {commit}, with {NOTES} as its text
  below {url}/v{version}/, in bytes:
{files}\
  in a registry of charts: helm push build/release/plimsoll-{version}.tgz oci://REGISTRY
  in krew's index: plimsoll.yaml as plugins/plimsoll.yaml
  in a registry of images, which need a base image: make images BASE=…, then as docs/images.md says
"""


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*words: str) -> str:
    done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607 - git by its name
    if done.returncode:
        raise SystemExit(f"git {words[0]}: {done.stderr.strip()}; remedy: make the release in a clone")
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    """Check that the tree can be released, and lay out the release.

    `--check` looks at the tree alone, so that nobody waits for wheels of a tree that cannot be released.
    """
    url = checked_url(arguments[0])
    version = version_of((ROOT / "pyproject.toml").read_text(), (CHART / "Chart.yaml").read_text())
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(), version)
    if changed := _git("status", "--porcelain"):
        name = changed.splitlines()[0][2:].strip()
        raise SystemExit(
            f"{name} and maybe more is not committed; remedy: commit it, as a release is a commit's"
        )
    if arguments[1:] != ["--check"]:
        lay_out(version, url, notes)
        sys.stdout.write(would_publish(version, url, _git("rev-parse", "HEAD")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
