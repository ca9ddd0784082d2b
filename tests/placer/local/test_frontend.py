"""Local pods run from manifest to end, on emulated nodes with real brokers and the real hook."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from placer.local.frontend import LocalFrontEnd
from placer.local.manifest import parse_manifests
from plimsoll.broker.client import BrokerClient
from plimsoll.broker.environment import processes_of
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Container, PodSpec
from plimsoll.part.errors import InputError
from plimsoll.percent import bytes_of
from plimsoll.quantity import GIB
from tests.placer.arrivals import eventually
from tests.placer.local.world import BUSY, GPU_GIB, World, broker, gpu_of, idle_report, placed, pod, world

ROOT = Path(__file__).parents[3]

SLEEP = ["sleep", "1000"]
SHOW = ["sh", "-c", "env"]


async def phase(front_end: LocalFrontEnd, uid: PodUid) -> str | None:
    """The pod's current phase."""
    row = front_end.pods.get(uid)
    return row.phase if row else None


async def ended(front_end: LocalFrontEnd, uid: PodUid, expected: str) -> None:
    """Wait until the pod is in the expected phase."""
    await eventually(lambda: phase(front_end, uid), expected)


async def test_pod_runs_on_the_best_node_and_succeeds(tmp_path: Path) -> None:
    """A pod goes to the node with most headroom, its program allocates within its line, and its end frees all."""
    async with world(tmp_path, "busy", "idle") as here, here.front_end() as front_end:
        here.tell(idle_report("busy", 2, idle_pct=5))
        started = await placed(front_end, pod("p", [BUSY, "--memory", "512Mi", "--seconds", "0.2"]))
        assert started.node == "idle"
        assert started.gpus == {"main": (gpu_of("idle"),)}
        assert here.decider.ledger.booking(started.uid) is not None
        await ended(front_end, started.uid, "Succeeded")
        assert [row.phase for row in here.changes if row.uid == started.uid] == [
            "Pending",
            "Running",
            "Succeeded",
        ]
        assert here.decider.ledger.booking(started.uid) is None
        await eventually(lambda: registered(here), set())


async def registered(here: World) -> set[str]:
    """The pods that the brokers have registered."""
    names = set[str]()
    for node in here.nodes:
        async with BrokerClient(node.broker_root) as client:
            names |= {use.pod for use in (await client.describe()).containers}
    return names


async def test_pod_that_passes_its_line_gets_out_of_memory(tmp_path: Path) -> None:
    """An allocation past the declared memory gets CUDA's out-of-memory error, and the pod's row says so."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        neighbour = await placed(
            front_end, pod("neighbour", [BUSY, "--memory", "1Gi", "--hold-seconds", "1000"], "2Gi")
        )
        greedy = await placed(front_end, pod("greedy", [BUSY, "--memory", "3Gi"], "2Gi"))
        await ended(front_end, greedy.uid, "Failed")
        row = front_end.pods.get(greedy.uid)
        assert row is not None
        assert "CUDA_ERROR_OUT_OF_MEMORY" in row.message
        assert row.exit_code == 2
        assert await phase(front_end, neighbour.uid) == "Running"


PARTS = """
apiVersion: v1
kind: Pod
metadata: {name: parts, annotations: {plimsoll.dev/gpu-memory-percent: "40"}}
spec:
  containers:
    - {name: a, command: [sleep, "1000"], resources: {limits: {plimsoll.dev/gpu: 1}}}
    - {name: b, command: [sleep, "1000"], resources: {limits: {plimsoll.dev/gpu-share: 30}}}
    - {name: c, command: [sleep, "1000"]}
"""


async def test_percentages_of_a_manifest_are_lines_in_bytes(tmp_path: Path) -> None:
    """A local pod's containers that ask for a GPU get lines of the declared part of it, and a share where asked."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        [parsed] = parse_manifests(PARTS)
        await placed(front_end, parsed)
        async with BrokerClient(here.nodes[0].broker_root) as client:
            uses = (await client.describe()).containers
        lines = {use.container.name: use.container.lines[0] for use in uses}
        usable_bytes = (GPU_GIB - 1) * GIB
        assert {name: (line.line_bytes, line.share_pct) for name, line in lines.items()} == {
            "a": (bytes_of(40, usable_bytes), 0),
            "b": (bytes_of(40, usable_bytes), 30),
        }


async def test_process_sees_its_gpu_and_its_directories_alone(tmp_path: Path) -> None:
    """The environment names GPU, library and directories, and nothing else of Plimsoll's."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        started = await placed(front_end, pod("p", SHOW))
        await ended(front_end, started.uid, "Succeeded")
        text = await asyncio.to_thread(
            (tmp_path / "output" / f"default_p_{started.uid}" / "main.log").read_text
        )
    seen = dict(line.partition("=")[::2] for line in text.splitlines())
    assert seen["CUDA_VISIBLE_DEVICES"] == seen["NVIDIA_VISIBLE_DEVICES"] == gpu_of("n1")
    assert seen["LD_PRELOAD"].endswith("libplimsoll.so")
    assert started.uid in seen["PLIMSOLL_LIMITS_DIR"]
    ours = {name for name in seen if name.startswith("PLIMSOLL_")}
    assert ours == {"PLIMSOLL_EMULATOR", "PLIMSOLL_POD_UID", "PLIMSOLL_LIMITS_DIR", "PLIMSOLL_COUNTS_DIR"}


async def test_simultaneous_pods_never_share_the_same_room(tmp_path: Path) -> None:
    """Simultaneous pods run as far as their declarations fit; the others wait, and run when those end."""
    async with world(tmp_path, "n1", "n2") as here, here.front_end() as front_end:
        uids = [front_end.enqueue(pod(f"p{i}", SLEEP, "10Gi")).uid for i in range(6)]

        async def running() -> list[PodUid]:
            return [uid for uid in uids if await phase(front_end, uid) == "Running"]

        async def count() -> int:
            return len(await running())

        await eventually(count, 4)
        assert await running() == uids[:4]
        waiting = front_end.pods.get(uids[5])
        assert waiting is not None

        async def message() -> str:
            row = front_end.pods.get(uids[5])
            return row.message if row else ""

        await eventually(
            message, "0/2 nodes are available: 2 Insufficient plimsoll.dev/gpu-memory on one GPU."
        )
        for booked in (4, 4):
            await front_end.end((await running())[0])
            await eventually(count, booked)
        assert await running() == uids[2:]
        assert len(list(here.decider.ledger.bookings())) == 4


async def test_waiting_pod_runs_when_a_report_frees_room(tmp_path: Path) -> None:
    """A pod waits while an unknown process holds the memory, and runs when a report shows it free."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        here.tell(idle_report("n1", 2, other_bytes=20 * GIB))
        row = front_end.enqueue(pod("p", SLEEP, "10Gi"))
        await eventually(lambda: has_message(front_end, row.uid), expected=True)
        here.tell(idle_report("n1", 3))
        await eventually(lambda: phase(front_end, row.uid), "Running")


async def has_message(front_end: LocalFrontEnd, uid: PodUid) -> bool:
    """Whether the waiting pod's row has a message."""
    row = front_end.pods.get(uid)
    return row is not None and row.message.startswith("0/")


async def test_node_without_report_is_named(tmp_path: Path) -> None:
    """A refusal counts nodes without a report among its reasons."""
    async with world(tmp_path, "n1", "n2") as here, here.front_end() as front_end:
        here.decider.reports.forget(NodeName("n2"))
        row = front_end.enqueue(pod("p", SLEEP, "100Gi"))
        await eventually(lambda: has_message(front_end, row.uid), expected=True)

        async def message() -> str:
            found = front_end.pods.get(row.uid)
            return found.message if found else ""

        await eventually(
            message,
            "0/2 nodes are available: 1 Insufficient plimsoll.dev/gpu-memory on one GPU, "
            "1 node(s) had no GPU report.",
        )


@pytest.mark.parametrize(
    ("command", "annotations", "message"),
    [
        ([], {}, r"spec.containers\[main\].command: \[\] is missing"),
        (SLEEP, {"policy": "fastest"}, "'fastest' is no placement policy; choose one of binpack"),
        (SLEEP, {"affinity": "a"}, "is not handled for pods without Kubernetes"),
        (SLEEP, {"policies": "headroom"}, "did you mean plimsoll.dev/policy"),
    ],
)
async def test_pod_that_can_never_run_is_refused(
    tmp_path: Path, command: list[str], annotations: dict[str, str], message: str
) -> None:
    """A pod that can never run is refused at once with field, value and remedy, and leaves no row."""
    async with world(tmp_path) as here, here.front_end() as front_end:
        with pytest.raises(InputError, match=message):
            front_end.enqueue(pod("p", command, **annotations))
        assert front_end.pods.rows() == ()


async def test_command_that_does_not_exist_fails_and_frees_its_place(tmp_path: Path) -> None:
    """A command that does not exist fails the pod by the command's name, and ledger and broker forget the pod."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        await ended(front_end, front_end.enqueue(pod("p", ["/no/such/program"])).uid, "Failed")
        [row] = front_end.pods.rows()
        assert "'/no/such/program' cannot be started" in row.message
        assert (row.phase, row.exit_code) == ("Failed", 128)
        assert list(here.decider.ledger.bookings()) == []
        await eventually(lambda: registered(here), set())


async def test_exit_codes_are_those_of_kubernetes(tmp_path: Path) -> None:
    """A pod fails with its container's exit code, or 128 + n after signal n."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        seven = await placed(front_end, pod("seven", ["sh", "-c", "echo last words; exit 7"]))
        killed = await placed(front_end, pod("killed", ["sh", "-c", "kill -9 $$$$"]))
        for uid, code, words in ((seven.uid, 7, "last words"), (killed.uid, 137, "")):
            await ended(front_end, uid, "Failed")
            row = front_end.pods.get(uid)
            assert row is not None
            assert (row.exit_code, row.message) == (code, words)


async def test_container_without_gpu_sees_none(tmp_path: Path) -> None:
    """A container without a GPU gets no device and no hook beside one with a GPU.

    The pod ends with its last container.
    """
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        given = pod("p", ["sleep", "0.1"])
        beside = Container(name="beside", command=SHOW)
        both = PodSpec(containers=[*given.spec.containers, beside])
        started = await placed(front_end, type(given)(metadata=given.metadata, spec=both))
        await ended(front_end, started.uid, "Succeeded")
        text = await asyncio.to_thread(
            (tmp_path / "output" / f"default_p_{started.uid}" / "beside.log").read_text
        )
        assert "NVIDIA_VISIBLE_DEVICES=void" in text
        assert "LD_PRELOAD" not in text


async def test_ending_a_pod_ends_its_processes(tmp_path: Path) -> None:
    """A pod ended on request leaves no process, not even a child, and its place is free."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        started = await placed(front_end, pod("p", ["sh", "-c", "sleep 1000 & sleep 1000"]))
        row = await front_end.end(started.uid)
        assert row is not None
        assert row.phase == "Failed"
        await eventually(lambda: asyncio.to_thread(processes_of, started.uid), ())
        assert here.decider.ledger.booking(started.uid) is None


async def test_end_of_the_front_end_ends_its_pods(tmp_path: Path) -> None:
    """A front end that is cancelled leaves no process and no registration."""
    async with world(tmp_path, "n1") as here:
        async with here.front_end() as front_end:
            started = await placed(front_end, pod("p", SLEEP))
            assert await asyncio.to_thread(processes_of, started.uid)
        assert not await asyncio.to_thread(processes_of, started.uid)
        await eventually(lambda: registered(here), set())


async def test_same_manifest_again_is_the_same_pod(tmp_path: Path) -> None:
    """A manifest submitted twice, as after a lost answer, makes one pod; a different one of that name is refused."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        first = front_end.enqueue(pod("p", SLEEP))
        await eventually(lambda: phase(front_end, first.uid), "Running")
        assert front_end.enqueue(pod("p", SLEEP)).uid == first.uid
        with pytest.raises(InputError, match="is taken by a pod that is Running"):
            front_end.enqueue(pod("p", SLEEP, "2Gi"))
        assert len(front_end.pods.rows()) == 1


async def test_killed_broker_keeps_pods_waiting_and_not_lost(tmp_path: Path) -> None:
    """A node whose broker is dead takes no new pod, and takes it when the broker is back."""
    async with world(tmp_path, "n1") as here, here.front_end() as front_end:
        root = here.nodes[0].broker_root
        await placed(front_end, pod("before", SLEEP))
        async with BrokerClient(root) as client:
            pid = await broker_pid(client, root)
        os.kill(pid, signal.SIGKILL)
        row = front_end.enqueue(pod("p", SLEEP))
        await asyncio.sleep(0.3)
        assert await phase(front_end, row.uid) == "Pending"
        async with broker(root):
            await eventually(lambda: phase(front_end, row.uid), "Running")
            await front_end.end(row.uid)


async def broker_pid(client: BrokerClient, root: Path) -> int:
    """The pid of the process that holds the broker's lock."""
    await client.describe()

    def find() -> int:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if f"PLIMSOLL_BROKER_ROOT={root}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    return int(entry.name)
        raise AssertionError("no broker runs")

    return await asyncio.to_thread(find)


async def test_pod_of_a_killed_placer_still_counts(tmp_path: Path) -> None:
    """After SIGKILL of the placer the next one counts the running pod, keeps its room, and notices its end."""
    async with world(tmp_path, "n1") as here:
        node = here.nodes[0]
        told = {
            "socket": str(node.broker_socket),
            "environment": dict(node.environment),
            "output": str(node.output),
        }
        first = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.placer.local.programs.killed_placer"),
            json.dumps(told),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert first.stdout is not None
        uid = PodUid((await first.stdout.readline()).decode().strip())
        first.kill()
        await first.communicate()
        async with here.front_end() as front_end:
            await eventually(lambda: phase(front_end, uid), "Running")
            booking = here.decider.ledger.booking(uid)
            assert booking is not None
            assert [grant.memory_bytes for grant in booking.grants] == [20 * GIB]
            row = front_end.enqueue(pod("late", SLEEP, "20Gi"))
            await eventually(lambda: has_message(front_end, row.uid), expected=True)
            for pid in await asyncio.to_thread(processes_of, uid):
                os.kill(pid, signal.SIGKILL)
            await ended(front_end, uid, "Failed")
            await eventually(lambda: phase(front_end, row.uid), "Running")
