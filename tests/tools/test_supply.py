"""Each installed package is pinned by hashes, and the bill of materials names all of them."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from plimsoll.native import BUILD, FILES
from tests.package.installed import ROOT, ended, uv
from tools.sbom import HEADERS, LINKED, NAME, bill

LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
TARGET = ("--target", "wheel", "--directory")


@pytest.fixture(name="listed", scope="module")
def _listed() -> dict[str, Any]:
    return bill(BUILD)


def test_each_locked_file_has_a_hash() -> None:
    """Every package but ours comes from the index, and each file of it has a SHA-256 that uv checks."""
    ours, *others = sorted(LOCK["package"], key=lambda one: one["name"] != "plimsoll")
    assert ours["source"] == {"editable": "."}
    for package in others:
        assert package["source"] == {"registry": "https://pypi.org/simple"}, package["name"]
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        assert files, package["name"]
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", file["hash"]) for file in files), package["name"]


def test_the_installer_itself_is_pinned() -> None:
    """`tools/bootstrap` fetches one version of uv, by hashes; nothing else is fetched without them."""
    named = re.findall(r"^[a-z].*$", (ROOT / "tools" / "uv.txt").read_text(), re.MULTILINE)
    assert len(named) == 1
    assert re.match(r"uv==[\d.]+ ", named[0])
    for script in ("tools/bootstrap", "tools/images", "deploy/krew/kubectl-plimsoll"):
        for line in re.findall(r"^.*\bpip install\b.*(?:\n .*)*", (ROOT / script).read_text(), re.MULTILINE):
            for command in line.split("&& pip install"):
                assert "--require-hashes" in command or "--no-deps" in command, command


async def test_a_package_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    """Where the index offers a file of another content, the installation of uv ends with an error."""
    text = (ROOT / "tools" / "uv.txt").read_text()
    forged = tmp_path / "uv.txt"
    forged.write_text(re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, text))
    place = ("--target", tmp_path / "packages")
    end = await ended(uv(), "pip", "install", "--require-hashes", "--requirement", forged, *place)
    assert end.code != 0
    assert "hash" in end.errors.lower()


def test_the_bill_names_every_package_of_an_installation(listed: dict[str, Any]) -> None:
    """The packages that our own need, all the way down, in their locked versions and with hashes."""
    packages = {one["name"]: one for one in LOCK["package"]}
    asked, needed = ["plimsoll"], set[str]()
    while asked:
        package = packages[asked.pop()]
        found = list(package.get("dependencies", ()))
        for one in found:
            chosen = packages[one["name"]].get("optional-dependencies", {})
            found += [more for extra in one.get("extra", ()) for more in chosen[extra]]
        names = {one["name"] for one in found} - needed
        needed |= names
        asked += names
    by_name = {one["name"]: one for one in listed["components"]}
    assert {"aiohttp", "cryptography", "nkeys", "hiredis"} <= needed <= set(by_name)
    for name in needed:
        assert by_name[name]["version"] == packages[name]["version"]
        assert by_name[name]["externalReferences"][0]["hashes"][0]["alg"] == "SHA-256"


def test_the_bill_names_every_file_of_c(listed: dict[str, Any]) -> None:
    """Each file with its hash and machine, and the packages from which code or headers are in it."""
    by_name = {one["name"]: one for one in listed["components"]}
    for file in FILES:
        [digest] = by_name[file]["hashes"]
        assert digest["content"] == hashlib.sha256((BUILD / file).read_bytes()).hexdigest()
    assert by_name[LINKED]["scope"] == "required"
    assert {by_name[name]["scope"] for name in HEADERS} == {"excluded"}
    [root] = [one for one in listed["dependencies"] if one["ref"].startswith("plimsoll-")]
    assert {f"file:{file}" for file in FILES} < set(root["dependsOn"])
    references = [one["bom-ref"] for one in listed["components"]]
    assert len(references) == len(set(references))
    named = {one for entry in listed["dependencies"] for one in (entry["ref"], *entry.get("dependsOn", ()))}
    assert named <= {*references, listed["metadata"]["component"]["bom-ref"]}


def test_the_same_tree_gives_the_same_bill(listed: dict[str, Any]) -> None:
    """Neither a time nor a random number is in it, so wheels stay the same, byte for byte."""
    assert bill(BUILD) == listed


def test_a_wheel_has_its_bill_in_it(tmp_path: Path) -> None:
    """A wheel of `make wheel` has the bill of its own files where PEP 770 wants it."""
    files = tmp_path / "files"
    for file in FILES:
        (files / file).parent.mkdir(parents=True, exist_ok=True)
        (files / file).write_bytes((BUILD / file).read_bytes())
    (files / NAME).write_text("{}")
    command = (sys.executable, "-m", "hatchling", "build", *TARGET, str(tmp_path))
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PLIMSOLL_WHEEL_FILES": str(files)}, check=True)
    [wheel] = tmp_path.glob("*.whl")
    assert [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(f".dist-info/sboms/{NAME}")]
