"""Writes the bill of materials of an installation, in CycloneDX's JSON: what runs, and what it was made with.

    python -m tools.sbom FOLDER > FOLDER/plimsoll.cdx.json

uv lists the locked Python packages with their hashes. This module adds what uv does not know: the files that C makes,
from FOLDER, and the packages whose code or headers are in them. What always holds: the same lock, files and uv give
the same bytes, so the time and the random number of uv's list are left out.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from plimsoll.native import FILES, MACHINES

ROOT: Final = Path(__file__).resolve().parents[1]
NAME: Final = "plimsoll.cdx.json"
LINKED: Final = "ziglang"
"""The compiler, whose run-time functions are linked into the files."""

HEADERS: Final = ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime", "nvidia-nvml-dev-cu12")
"""The packages of headers. Their declarations and numbers are in the files, and no code."""

_Json = dict[str, Any]


def bill(folder: Path) -> _Json:
    """The bill of materials of the locked packages and the files in a folder.

    Args:
        folder: where `make packed`, or `make native`, put the files.

    Raises:
        SystemExit: a file is missing.
    """
    found = locked()
    found.pop("serialNumber", None)
    found["metadata"].pop("timestamp", None)
    versions = _versions()
    needed = [_package(LINKED, versions, "required")]
    needed += [_package(name, versions, "excluded") for name in HEADERS]
    files = [_file(folder, file) for file in FILES]
    found["components"] += [*files, *needed]
    root = found["metadata"]["component"]["bom-ref"]
    for one in found["dependencies"]:
        if one["ref"] == root:
            one["dependsOn"] = [*one.get("dependsOn", ()), *_references(files)]
    found["dependencies"] += [{"ref": name, "dependsOn": _references(needed)} for name in _references(files)]
    found["dependencies"] += [{"ref": name} for name in _references(needed)]
    return found


def locked() -> _Json:
    """The packages of `uv.lock` that an installation needs, with the hash of each file, as uv lists them."""
    found: _Json = json.loads(exported("--format", "cyclonedx1.5", "--preview-features", "sbom-export"))
    return found


def exported(*options: str) -> str:
    """The packages of `uv.lock` that an installation needs, in the form that `options` of `uv export` choose."""
    uv = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
    command = (uv, "export", "--quiet", "--frozen", "--no-default-groups", *options)
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout  # noqa: S603 - our own installer


def _versions() -> dict[str, str]:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    return {one["name"]: one["version"] for one in lock["package"] if "version" in one}


def _package(name: str, versions: dict[str, str], scope: str) -> _Json:
    version = versions[name]
    purl = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "scope": scope,
    }


def _file(folder: Path, name: str) -> _Json:
    path = folder / name
    if not path.is_file():
        raise SystemExit(f"{path} is missing; remedy: `make wheel`, or `make native` for this machine alone")
    content = path.read_bytes()
    machine = MACHINES[int.from_bytes(content[18:20], "little")]
    digest = hashlib.sha256(content).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "properties": [{"name": "plimsoll:machine", "value": machine}],
    }


def _references(components: Iterable[_Json]) -> list[str]:
    return [one["bom-ref"] for one in components]


def main() -> int:
    """Print the bill for the folder that the command line names."""
    if len(sys.argv) != 2:
        raise SystemExit(
            "usage: python -m tools.sbom FOLDER, where `make native` or `make wheel` put their files"
        )
    json.dump(bill(Path(sys.argv[1])), sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
