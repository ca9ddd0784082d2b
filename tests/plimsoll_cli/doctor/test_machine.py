"""The checks of this machine: the emulated driver, the real library, and a real broker."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from plimsoll.native import HOOK_LIBRARY
from plimsoll_cli.doctor import machine as checks
from plimsoll_cli.doctor.finding import Verdict
from plimsoll_cli.doctor.machine import Machine as Where
from plimsoll_cli.doctor.machine import machine as examine
from tests.placer.local.world import BUSY
from tests.plimsoll_cli.doctor.findings import found, of, verdicts
from tests.solo.machine import Machine


async def findings_of(machine: Machine, **environment: str) -> tuple[int | None, dict[str, dict[str, Any]]]:
    """The exit code of the command on this machine, and the findings about it by their checks."""
    process = await machine.start("-o", "json", module="plimsoll doctor", **environment)
    output, errors = await process.communicate()
    assert not errors, errors.decode()
    [group] = [one for one in json.loads(output)["groups"] if one["name"] == "this machine"]
    return process.returncode, {one["check"]: one for one in group["findings"]}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An emulated machine for one test."""
    return Machine(tmp_path)


async def test_a_machine_with_a_driver_and_a_broker(machine: Machine) -> None:
    """Driver, library and broker are well while a command runs, and the broker is skipped where none is."""
    code, findings = await findings_of(machine)
    assert (code, findings["broker"]["verdict"]) == (0, "skipped")
    assert findings["driver"]["text"].endswith(", 1 GPU")
    words = ("--memory", "256Mi", "--kernel-ms", "1", "--seconds", "600")
    program = await machine.start("--gpu-memory", "1Gi", "--gpu-share", "30", "--", BUSY, *words)
    assert program.stdout is not None
    await program.stdout.readline()
    code, findings = await findings_of(machine)
    assert (code, findings["broker"]["verdict"]) == (0, "ok"), findings
    assert findings["broker"]["text"].endswith(", 1 container")
    program.terminate()
    await program.communicate()


async def test_a_library_that_is_missing_or_none(tmp_path: Path) -> None:
    """Programs would run without their lines, so it is a failure, with the file's name."""
    library = tmp_path / "libplimsoll.so"
    one = of(await found(examine(Where(tmp_path, library))), "library")
    assert one.verdict is Verdict.FAILED
    assert one.text == f"libplimsoll.so: '{library}' does not exist"
    library.write_text("no library")
    one = of(await found(examine(Where(tmp_path, library))), "library")
    assert one.verdict is Verdict.FAILED
    assert one.text.endswith("is not Plimsoll's library")


async def test_a_broker_that_died_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that nobody serves is a failure: programs run on, and their shares are not held."""
    monkeypatch.setattr(checks, "BROKER_S", 0.5)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "broker.sock"))
        for _ in ("refuses", "hangs"):
            findings = await found(examine(Where(tmp_path, HOOK_LIBRARY, tmp_path)))
            one = of(findings, "broker")
            assert one.verdict is Verdict.FAILED
            assert f"the broker at {tmp_path} does not answer" in one.text
            assert "restart it" in one.remedy
            dead.listen()


async def test_a_card_without_a_driver_or_a_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that no driver answers for is a failure, and one without the toolkit a warning; no card is skipped."""
    where = Where(tmp_path / "none", HOOK_LIBRARY, tmp_path)
    assert of(await found(examine(where)), "driver").verdict is Verdict.SKIPPED
    for number, (vendor, kind) in enumerate(
        (("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x8086", "0x030000"))
    ):
        device = tmp_path / "bus" / "pci" / "devices" / f"0000:0{number}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    findings = await found(examine(where))
    assert of(findings, "driver").text.startswith("1 NVIDIA card here, and no driver: ")
    assert "dmesg" in of(findings, "driver").remedy
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert of(await found(examine(where)), "toolkit").remedy.startswith("install NVIDIA's container toolkit")
    (programs / "nvidia-container-runtime").touch(0o755)
    assert verdicts(await found(examine(where)))["toolkit"] == "ok"


async def test_a_library_that_needs_a_newer_glibc(tmp_path: Path) -> None:
    """The real library, made to ask for a version that no glibc has: the loader's own reason is shown."""
    content = HOOK_LIBRARY.read_bytes()
    assert b"GLIBC_2.17" in content
    newer = tmp_path / "libplimsoll.so"
    newer.write_bytes(content.replace(b"GLIBC_2.17", b"GLIBC_9.17"))
    finding = of(await found(examine(Where(tmp_path / "none", newer, tmp_path))), "library")
    assert finding.verdict is Verdict.FAILED
    assert "`GLIBC_9.17' not found" in finding.text


@pytest.mark.parametrize(("enforce", "verdict"), [("1", "warning"), ("0", "ok"), (None, "ok")])
async def test_selinux(tmp_path: Path, enforce: str | None, verdict: str) -> None:
    """Enforcing SELinux may keep containers from the socket; the warning says where that is seen."""
    if enforce is not None:
        (tmp_path / "fs" / "selinux").mkdir(parents=True)
        (tmp_path / "fs" / "selinux" / "enforce").write_text(enforce)
    findings = await found(examine(Where(tmp_path / "none", HOOK_LIBRARY, tmp_path)))
    assert verdicts(findings)["selinux"] == verdict
