"""MIG: a card that is divided into instances, as NVML and CUDA show it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.emulator.cuda_program import Node
from tests.emulator.nvml_program import LIBRARIES, MIB, Program, environment, refusal, tool

CARD = "GPU-5a1c0d2e-0000-0000-0000-000000000001"
WHOLE = "GPU-5a1c0d2e-0000-0000-0000-000000000002"
SMALL = "MIG-5a1c0d2e-0000-0000-0000-000000000011"
LARGE = "MIG-5a1c0d2e-0000-0000-0000-000000000013"
SMALL_MIB, LARGE_MIB = 4864, 19968
NODE = f"""
sample = 50ms
[gpu 0]
uuid = {CARD}
model = NVIDIA A100-SXM4-40GB
memory = 40Gi
context = 300Mi
compute = 8.0
sms = 108
mig = yes
[gpu 1]
uuid = {WHOLE}
memory = 24Gi
[mig 0 1]
uuid = {SMALL}
profile = 1g.5gb
memory = {SMALL_MIB}Mi
sms = 14
[mig 0 3]
uuid = {LARGE}
profile = 3g.20gb
memory = {LARGE_MIB}Mi
sms = 42
"""


@pytest.fixture
def program(node_file: Path) -> Iterator[Program]:
    """A program with NVML; `mig(number)` is an instance's handle."""
    with Program(node_file) as started:
        started("n.nvmlInit()")
        yield started


def mig(number: int) -> str:
    """Code for the handle of an instance."""
    return f"n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(0), {number})"


def test_instances_are_devices_beside_the_cards(program: Program) -> None:
    """Cards are counted alone; an instance is found by its number or UUID, and has name, ids, size and card."""
    assert program("n.nvmlDeviceGetCount()") == 2
    assert program("[n.nvmlDeviceGetMaxMigDeviceCount(gpu(i)) for i in (0, 1)]") == [7, 0]
    assert program("n.nvmlDeviceGetMigMode(gpu(0))") == [1, 1]
    for number, uuid, profile, slices, mib in (
        (1, SMALL, "1g.5gb", 1, SMALL_MIB),
        (3, LARGE, "3g.20gb", 3, LARGE_MIB),
    ):
        assert program(f"n.nvmlDeviceGetUUID({mig(number)})") == uuid
        assert program(f"n.nvmlDeviceGetName({mig(number)})") == f"NVIDIA A100-SXM4-40GB MIG {profile}"
        assert program(f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID('{uuid}'))") == number
        assert program(f"n.nvmlDeviceGetGpuInstanceId({mig(number)})") == number + 1
        assert program(f"n.nvmlDeviceGetComputeInstanceId({mig(number)})") == 0
        assert program(f"n.nvmlDeviceIsMigDeviceHandle({mig(number)}).value") == 1
        card = f"n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle({mig(number)})"
        assert program(f"n.nvmlDeviceGetUUID({card})") == CARD
        assert program(f"n.nvmlDeviceGetAttributes_v2({mig(number)}).gpuInstanceSliceCount") == slices
        assert program(f"n.nvmlDeviceGetMemoryInfo({mig(number)}).total") == mib * MIB
    assert program("n.nvmlDeviceIsMigDeviceHandle(gpu(0)).value") == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (mig(0), pynvml.NVML_ERROR_NOT_FOUND),
        (mig(7), pynvml.NVML_ERROR_INVALID_ARGUMENT),
        ("n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(1), 0)", pynvml.NVML_ERROR_NOT_SUPPORTED),
        ("n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu(0))", pynvml.NVML_ERROR_INVALID_ARGUMENT),
        ("n.nvmlDeviceGetMigMode(gpu(1))", pynvml.NVML_ERROR_NOT_SUPPORTED),
        *(
            (code, pynvml.NVML_ERROR_NOT_SUPPORTED)
            for device in (mig(1), "gpu(0)")
            for code in (
                f"n.nvmlDeviceGetUtilizationRates({device})",
                f"n.nvmlDeviceGetSamples({device}, 0, 0)",
                f"n.nvmlDeviceGetProcessUtilization({device}, 0)",
            )
        ),
        (f"n.nvmlDeviceGetPciInfo({mig(1)})", pynvml.NVML_ERROR_NOT_SUPPORTED),
        (f"n.nvmlDeviceGetTemperature({mig(1)}, 0)", pynvml.NVML_ERROR_NOT_SUPPORTED),
    ],
)
def test_calls_that_mig_does_not_offer_are_refused(program: Program, code: str, error: int) -> None:
    """No utilisation of a divided card, and little of an instance."""
    assert refusal(program, code) == error


def test_cuda_shows_a_process_one_instance(node_file: Path) -> None:
    """`CUDA_VISIBLE_DEVICES` chooses an instance; there are never two, nor a whole card beside one."""
    shown = {
        None: [SMALL],
        SMALL: [SMALL],
        LARGE: [LARGE],
        f"{LARGE},{SMALL}": [LARGE],
        f"{WHOLE},{LARGE}": [LARGE],
        "0": [SMALL],
        "1": [WHOLE],
        WHOLE: [WHOLE],
        "MIG-5a1c0d2e-0000-0000-0000-000000000012": [],
    }
    for variable, uuids in shown.items():
        more = {"CUDA_VISIBLE_DEVICES": variable} if variable else {}
        found = Node(node_file).python("driver.device_names", **more)
        assert [one[1] for one in found] == [uuid[4:] for uuid in uuids], variable
        assert [one[0] for one in found] == [(CARD if uuid != WHOLE else WHOLE)[4:] for uuid in uuids]


def test_an_instance_has_its_own_memory_and_processes(
    node_file: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of one instance is no other's; the card shows the sum, and whose process is on which instance."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", SMALL)
    with Program(node_file) as small:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", LARGE)
        with Program(node_file) as large:
            small("c = Cuda()")
            large("c = Cuda()")
            small(f"(c.open(0), c.allocate({500 * MIB}), None)[2]")
            large(f"(c.open(0), c.allocate({9000 * MIB}), None)[2]")
            with pytest.raises(AssertionError, match="CUDA error 2"):
                small(f"c.allocate({5000 * MIB})")
            used = (
                f"[n.nvmlDeviceGetMemoryInfo(d).used // {MIB} for d in ({mig(1)}, {mig(3)}, gpu(0), gpu(1))]"
            )
            assert program(used) == [800, 9300, 10100, 0]
            listed = (
                "[[p.pid, p.gpuInstanceId, p.computeInstanceId]"
                " for p in n.nvmlDeviceGetComputeRunningProcesses_v3({})]"
            )
            assert program(listed.format(mig(1))) == [[small.pid, 2, 0]]
            assert program(listed.format(mig(3))) == [[large.pid, 4, 0]]
            both = sorted([[small.pid, 2, 0], [large.pid, 4, 0]])
            assert sorted(program(listed.format("gpu(0)"))) == both
            small.kill()
            assert program(used) == [0, 9300, 9300, 0]


def test_the_book_has_the_work_of_each_instance(node_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each instance has its own device time; the card's is the sum."""
    for uuid in (SMALL, LARGE):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid)
        subprocess.run(
            [LIBRARIES.parent / "bin" / "busy", "--memory", "10M", "--kernel-ms", "5", "--seconds", "0.2"],
            env=environment(node_file),
            check=True,
            stdout=subprocess.DEVNULL,
        )
    output = subprocess.run(
        [LIBRARIES / "book"], env=environment(node_file), check=True, capture_output=True, text=True
    ).stdout
    gpus = {gpu["uuid"]: gpu for gpu in json.loads(output)["gpus"]}
    assert gpus[SMALL]["busy_ns"] > 0
    assert gpus[LARGE]["busy_ns"] > 0
    assert gpus[CARD]["busy_ns"] == gpus[SMALL]["busy_ns"] + gpus[LARGE]["busy_ns"]
    assert [gpus[uuid]["card"] for uuid in (CARD, WHOLE, SMALL, LARGE)] == [0, 1, 0, 0]


def test_what_befalls_the_card_befalls_its_instances(node_file: Path, program: Program) -> None:
    """A lost card takes its instances along; an XID names the instance where it is one's."""
    handles = f"{mig(1)}, {mig(3)}"
    tool(node_file, "lose", "0")
    for device in handles.split(", n"):
        handle = device if device.startswith("n") else f"n{device}"
        assert refusal(program, f"n.nvmlDeviceGetMemoryInfo({handle})") == pynvml.NVML_ERROR_GPU_IS_LOST
    tool(node_file, "find", "0")
    program("events = n.nvmlEventSetCreate()")
    program("n.nvmlDeviceRegisterEvents(gpu(0), n.nvmlEventTypeXidCriticalError, events)")
    tool(node_file, "xid", "0", "79")
    tool(node_file, "xid", "3", "43")
    seen = (
        "(lambda e: [n.nvmlDeviceGetUUID(e.device), e.eventData, e.gpuInstanceId])"
        "(n.nvmlEventSetWait_v2(events, 10000))"
    )
    assert program(seen) == [CARD, 79, 0xFFFFFFFF]
    assert program(seen) == [CARD, 43, 4]
    refused = f"n.nvmlDeviceRegisterEvents({mig(1)}, n.nvmlEventTypeXidCriticalError, events)"
    assert refusal(program, refused) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_a_hidden_card_hides_its_instances(
    node_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container without the card's device file finds none of its instances."""
    (tmp_path / "nvidia1").touch()
    monkeypatch.setenv("PLIMSOLL_EMULATOR_DEVICES", str(tmp_path))
    with Program(node_file) as program:
        program("n.nvmlInit()")
        assert program("n.nvmlDeviceGetCount()") == 1
        assert refusal(program, f"n.nvmlDeviceGetHandleByUUID('{SMALL}')") == pynvml.NVML_ERROR_NOT_FOUND


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("[gpu 0]\n[mig 0 0]\nprofile = 1g.5gb", "with mig = yes"),
        ("[gpu 0]\nmig = yes\n[mig 0 7]\nprofile = 1g.5gb", "from 0 to 6"),
        ("[gpu 0]\nmig = yes\n[mig 0 0]", "give each [mig] section one"),
        ("[gpu 0]\nmig = yes\n[mig 0 0]\nprofile = 8g.5gb", "such as 1g.5gb"),
        ("[gpu 0]\nmig = yes\n[mig 0 0]\nprofile = 1g.40gb", "must fit in it"),
        ("[gpu 0]\nmig = yes\n[mig 0 0]\nprofile = 4g.5gb\n[mig 0 1]\nprofile = 4g.5gb", "must fit in it"),
        ("[gpu 0]\nmig = yes\n[mig 0 0]\npci = 0000:17:00.0", "no such key in [mig]"),
        (f"[gpu 0]\nmig = yes\n[mig 0 0]\nuuid = {CARD}", "give MIG- and"),
    ],
)
def test_instances_that_cannot_be_are_refused(tmp_path: Path, text: str, remedy: str) -> None:
    """The node_file's reader names the remedy."""
    path = tmp_path / "node"
    path.write_text(text + "\n")
    run = subprocess.run(
        [LIBRARIES / "book"], env=environment(path), check=False, capture_output=True, text=True
    )
    assert run.returncode == 2
    assert remedy in run.stderr


def test_an_instance_costs_what_its_card_costs(node: Node) -> None:
    """Without memory and processors of its own in the file, an instance has the profile's part of its card."""
    node.config.write_text("[gpu 0]\nmemory = 40Gi\nsms = 108\nmig = yes\n[mig 0 0]\nprofile = 2g.10gb\n")
    with Program(node.config) as program:
        program("n.nvmlInit()")
        assert program(f"n.nvmlDeviceGetMemoryInfo({mig(0)}).total") == 10_000_000_000
        assert program(f"n.nvmlDeviceGetAttributes_v2({mig(0)}).multiprocessorCount") == 30
        assert program(f"n.nvmlDeviceGetUUID({mig(0)})").startswith("MIG-")


def test_default_uuids_differ_between_cards_and_instances(tmp_path: Path) -> None:
    """CUDA gives the bytes alone, without `GPU-` and `MIG-`, so these differ too."""
    path = tmp_path / "node"
    instances = "[mig 0 0]\nprofile = 1g.5gb\n[mig 0 1]\nprofile = 1g.5gb\n"
    path.write_text(f"[gpu 0]\nmig = yes\nmemory = 40Gi\n[gpu 1]\n{instances}")
    shown = subprocess.run([LIBRARIES / "book"], env=environment(path), check=True, capture_output=True)
    places = json.loads(shown.stdout)["gpus"]
    assert len({place["uuid"].partition("-")[2] for place in places}) == len(places) == 4
