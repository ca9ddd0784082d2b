"""A registration makes directories and files, changes them in place, and removal deletes them."""

import asyncio
import ctypes
import stat
from pathlib import Path

import pytest

from plimsoll.broker.client import RefusedError
from plimsoll.broker.pages import COUNTS_MAGIC, FLAG_WHOLE_GPUS, LIMITS_MAGIC, VERSION, Counts, Limits
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from tests.hook.broker.conftest import GIB, GPUS, MAIN, POD, Broker, registration, until


async def test_registration_lays_out_both_pages(broker: Broker) -> None:
    """Both files have the layout's sizes, heads and numbers, and modes for every user of the container."""
    answer = await broker.client.register(registration(3 * GIB, whole=True, limit_pct=80))
    assert answer.containers[0].limits_dir == str(broker.limits_dir())
    assert answer.containers[0].counts_dir == str(broker.counts_dir())
    limits, counts = broker.limits(), broker.counts()
    assert (limits.magic, limits.version, limits.size) == (LIMITS_MAGIC, VERSION, ctypes.sizeof(Limits))
    assert (limits.generation % 2, limits.gpu_count, limits.flags) == (0, 2, FLAG_WHOLE_GPUS)
    for place, gpu in enumerate(GPUS):
        line = limits.gpus[place]
        assert (line.uuid.decode(), line.line_bytes, line.granted_bytes) == (gpu, 3 * GIB, 3 * GIB)
        assert (line.share_pct, line.limit_pct, line.context_bytes) == (30, 80, 0)
    assert (counts.magic, counts.version, counts.size) == (COUNTS_MAGIC, VERSION, ctypes.sizeof(Counts))
    assert not any(bytes(counts.slots))
    assert _mode(broker.limits_dir() / "limits") == 0o644
    assert _mode(broker.limits_dir() / "hook.sock") == 0o666
    assert _mode(broker.counts_dir() / "counts") == 0o666
    assert _mode(broker.root / "broker.sock") == 0o600
    assert (broker.counts_dir() / "counts").stat().st_size == ctypes.sizeof(Counts)
    assert (broker.limits_dir() / "limits").stat().st_size == ctypes.sizeof(Limits)


async def test_new_lines_reach_the_page_in_place(broker: Broker) -> None:
    """A new registration changes the same file under a new, even generation. The same lines change nothing."""
    await broker.client.register(registration(GIB))
    before, inode = broker.limits().generation, (broker.limits_dir() / "limits").stat().st_ino
    await broker.client.register(registration(GIB))
    assert broker.limits().generation == before
    await broker.client.register(registration(2 * GIB))
    assert broker.limits().generation == before + 2
    assert broker.limits().gpus[1].line_bytes == 2 * GIB
    assert (broker.limits_dir() / "limits").stat().st_ino == inode


async def test_a_rewrite_is_never_seen_torn(broker: Broker) -> None:
    """A process that reads by the rules while lines change never takes half a change for a page."""
    await broker.client.register(registration(1))
    reader = await broker.spawn()
    watching = asyncio.create_task(reader.do("watch-lines 200"))
    for line_bytes in range(2, 201):
        await broker.client.register(registration(line_bytes))
    assert int(await watching) > 1, "the reader saw no change"


async def test_a_broker_killed_in_a_rewrite_leaves_no_page_odd_for_ever(broker: Broker) -> None:
    """A page found odd at start is made whole and even again."""
    await broker.client.register(registration(GIB))
    await broker.kill()
    path = broker.limits_dir() / "limits"
    page = Limits.from_buffer_copy(path.read_bytes())
    page.generation += 1
    page.gpus[0].line_bytes = 17
    path.write_bytes(bytes(page))
    await broker.start()
    assert broker.limits().generation == page.generation + 1
    assert broker.limits().gpus[0].line_bytes == GIB


async def test_paths_past_a_sockets_address_work(tmp_path: Path) -> None:
    """A broker serves its containers where the paths of their sockets are longer than a socket's address."""
    deep = tmp_path / "/".join(["a-directory-with-quite-a-long-name"] * 6)
    deep.mkdir(parents=True)
    broker = Broker(deep / "root", {"audit_s": "3600"})
    try:
        await broker.start()
        await broker.client.register(registration())
        await (await broker.spawn()).begin()
        assert [entry.what for entry in await broker.announced(1)] == ["hello"]
    finally:
        await broker.close()


async def test_unregistering_waits_for_the_last_process(broker: Broker) -> None:
    """The directories stay while a process lives and go at its death. A second removal does no harm."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin(5)
    await broker.announced(1)
    await broker.client.unregister(POD)
    assert (broker.limits_dir() / "limits").exists()
    assert await broker.process_count() == 1
    await process.kill()
    await until(lambda: _is_gone(broker), "directories removed")
    await broker.client.unregister(POD)
    assert (await broker.client.describe()).containers == ()


async def test_a_process_that_never_said_hello_keeps_its_pods_directories(broker: Broker) -> None:
    """Removal finds the living owner of a slot that never greeted, announces it, and waits for it."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.do("claim")
    await broker.client.unregister(POD)
    assert (await broker.announced(1))[0].pid == process.pid
    assert (broker.limits_dir() / "limits").exists()
    await process.kill()
    await until(lambda: _is_gone(broker), "directories removed")


async def test_unregistering_is_remembered_over_a_restart(broker: Broker) -> None:
    """A pod whose removal a killed broker had begun is removed by the next one, after the last process."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    await broker.announced(1)
    await broker.client.unregister(POD)
    await broker.kill()
    await broker.start()
    assert (broker.limits_dir() / "limits").exists()
    await process.kill()
    await until(lambda: _is_gone(broker), "directories removed")


async def test_registering_again_cancels_leaving(broker: Broker) -> None:
    """A pod registered anew before its last process ends stays when that process ends."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    await broker.announced(1)
    await broker.client.unregister(POD)
    await broker.client.register(registration(2 * GIB))
    await process.kill()
    await broker.announced(2)
    await broker.until_vacant()
    assert broker.limits().gpus[0].line_bytes == 2 * GIB


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (registration(-1), "containers[0].lines[0].line_bytes: -1"),
        (registration(pod=PodUid("../../etc")), "pod: '../../etc'"),
        (registration(pod=PodUid("")), "pod: ''"),
        (registration(pod=PodUid("..")), "pod: '..'"),
        (Register(pod=POD, namespace="n", name="p", containers=()), "containers: ()"),
    ],
)
async def test_what_cannot_be_laid_out_is_refused(broker: Broker, request_: Register, said: str) -> None:
    """The refusal names field and value, and nothing is written to disk."""
    with pytest.raises(RefusedError) as refused:
        await broker.client.register(request_)
    assert str(refused.value).startswith(said)
    assert list(broker.root.glob("limits/*")) == []


async def test_gpus_of_a_registered_container_cannot_change(broker: Broker) -> None:
    """Another order of a container's GPUs is refused and the page stays, as processes count by that order."""
    await broker.client.register(registration())
    page = bytes(broker.limits())
    lines = tuple(Line(gpu=gpu, line_bytes=GIB) for gpu in reversed(GPUS))
    swapped = Register(pod=POD, namespace="n", name="p", containers=(ContainerLines(name=MAIN, lines=lines),))
    with pytest.raises(RefusedError, match="keep the GPUs and their order"):
        await broker.client.register(swapped)
    other = ContainerLines(name=ContainerName("other"), lines=(Line(gpu=GpuUuid("GPU-c"), line_bytes=1),))
    with pytest.raises(RefusedError, match="lacks 'main'"):
        await broker.client.register(Register(pod=POD, namespace="n", name="p", containers=(other,)))
    assert bytes(broker.limits()) == page


async def test_a_link_in_place_of_counts_leads_nowhere(broker: Broker, tmp_path: Path) -> None:
    """If a tenant replaces `counts` by a link, the broker does not write to the link's target."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"x" * ctypes.sizeof(Counts))
    await broker.client.register(registration())
    (broker.counts_dir() / "counts").unlink()
    (broker.counts_dir() / "counts").symlink_to(precious)
    assert (await broker.client.describe()).containers[0].processes == ()
    await broker.client.register(registration(2 * GIB))
    assert precious.read_bytes() == b"x" * ctypes.sizeof(Counts)
    assert not (broker.counts_dir() / "counts").is_symlink()
    assert broker.counts().magic == COUNTS_MAGIC


async def test_a_truncated_counts_does_not_bring_the_broker_down(broker: Broker) -> None:
    """If a tenant truncates `counts`, the tenant loses its own counts; the broker goes on and repairs the file."""
    await broker.client.register(registration())
    (broker.counts_dir() / "counts").write_bytes(b"")
    assert await broker.process_count() == 0
    await broker.client.register(registration())
    assert broker.counts().magic == COUNTS_MAGIC


async def _is_gone(broker: Broker) -> bool:
    return not (broker.root / "limits" / POD).exists() and not (broker.root / "counts" / POD).exists()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
