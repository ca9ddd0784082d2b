"""The stub of NVIDIA's runtime changes a container's specification as the original does. No container is started."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.node import nvidia_runtime
from tests.node.nvidia_runtime import UnknownGpuError

GPUS = ["GPU-a", "GPU-b"]


def spec(value: str | None) -> dict[str, Any]:
    """A container's specification, as far as the stub reads and changes it."""
    env = ["PATH=/bin"] + ([] if value is None else [f"NVIDIA_VISIBLE_DEVICES={value}"])
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    return {
        "process": {"env": env},
        "mounts": mounts,
        "linux": {"resources": {"devices": [{"allow": False}]}},
    }


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, Any]:
    """The stub's configuration for a node of two GPUs."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcuda.so.1").touch()
    return {"directory": str(tmp_path), "libraries": "/usr/lib", "uuids": GPUS}


@pytest.mark.parametrize(
    ("value", "names"),
    [(None, None), ("", None), ("void", None), ("none", []), ("all", ["all"]), ("GPU-a,1", ["GPU-a", "1"])],
)
def test_values_mean_what_the_toolkit_documents(value: str | None, names: list[str] | None) -> None:
    """Nothing and `void` leave the container as it is; `none` brings the driver without a GPU."""
    assert nvidia_runtime.wanted(spec(value)) == names


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        ([], []),
        (["all"], ["/dev/nvidia0", "/dev/nvidia1"]),
        (["GPU-b"], ["/dev/nvidia1"]),
        (["1"], ["/dev/nvidia1"]),
    ],
)
def test_both_modes_make_the_same_container(
    driver: dict[str, Any], names: list[str], paths: list[str]
) -> None:
    """Device files, the right to open them, and the driver's files follow from the names."""
    directory = Path(driver["directory"])
    cdi = nvidia_runtime.cdi_specification(directory, driver["libraries"], GPUS)
    by_driver = nvidia_runtime.edits_by_driver(driver, names)
    assert nvidia_runtime.edits_by_specification(cdi, names) == by_driver
    made = nvidia_runtime.edited(spec("any"), by_driver)
    assert [one["path"] for one in made["linux"]["devices"]] == paths
    refused, *allowed = made["linux"]["resources"]["devices"]
    assert refused == {"allow": False}
    assert [one["minor"] for one in allowed] == [int(path[-1]) for path in paths]
    destinations = [one["destination"] for one in made["mounts"]]
    assert destinations == ["/proc", "/usr/lib/libcuda.so.1", "/run/plimsoll-emulator"]


def test_unknown_gpus_are_refused_by_name(driver: dict[str, Any]) -> None:
    """Also an index past the last GPU."""
    for name in ("GPU-c", "2", "-1", "x"):
        with pytest.raises(UnknownGpuError, match=name):
            nvidia_runtime.edits_by_driver(driver, [name])
        with pytest.raises(UnknownGpuError, match=name):
            nvidia_runtime.edits_by_specification({"devices": [], "containerEdits": {}}, [name])


def test_only_creating_has_a_bundle() -> None:
    """Other commands of runc pass unchanged."""
    assert nvidia_runtime.bundle_of(["--root", "/r", "create", "--bundle", "/b", "id"]) == Path("/b")
    assert nvidia_runtime.bundle_of(["--root", "/r", "start", "id"]) is None


@pytest.mark.parametrize(
    ("env", "arguments", "begun"),
    [
        ("NVIDIA_VISIBLE_DEVICES=GPU-a", ("--root", "/r", "create", "--bundle", "{}", "id"), "python"),
        ("NVIDIA_VISIBLE_DEVICES=GPU-a", ("--root", "/r", "start", "id"), "runc"),
        ("PATH=/bin", ("--root", "/r", "create", "--bundle", "{}", "id"), "runc"),
    ],
)
def test_python_starts_only_where_a_container_names_gpus(
    tmp_path: Path, env: str, arguments: tuple[str, ...], begun: str
) -> None:
    """All other commands of the runtime, and sandboxes, cost what runc costs."""
    (tmp_path / "config.json").write_text(json.dumps({"process": {"env": [env]}}))
    program = tmp_path / "program"
    program.write_text(nvidia_runtime.PROGRAM.format(python="echo python", file="f.py", runc="echo runc"))
    given = [one.format(tmp_path) for one in arguments]
    output = subprocess.run(["sh", program, *given], check=True, capture_output=True, text=True).stdout
    expected = ["python", "-I", "-S", "f.py"] if begun == "python" else ["runc"]
    assert output.split() == [*expected, *given]
