"""Memory shared by processes: its contents, its charge, and its end with its last holder."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.cuda_program import CONTEXT_BYTES, MIB, Node


class Peer:
    """A process on its node that runs what a test sends it."""

    def __init__(self, node: Node) -> None:
        self.process = node.background("peer.obey")

    def ask(self, program: str) -> Any:  # noqa: ANN401 - JSON of any shape
        """Runs a program there: what it showed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(program) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def tell(self, program: str) -> None:
        """The same for a program that shows nothing."""
        assert self.ask(program + "\nshow(1)") == 1

    def kill(self) -> None:
        """`kill -9`, and waits for the end."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def peers(node: Node) -> Iterator[tuple[Peer, Peer]]:
    """An exporter and an importer on one node."""
    with ExitStack() as stack:
        pair = Peer(node), Peer(node)
        for peer in pair:
            stack.callback(peer.kill)
        yield pair


def held(node: Node, *peers: Peer) -> list[int]:
    """MiB beyond its context of each process, and of the card in all, which is their sum."""
    gpu = node.book()[0]
    assert gpu["used_bytes"] == sum(process["used_bytes"] for process in gpu["processes"])
    by_pid = {process["pid"]: process["used_bytes"] - CONTEXT_BYTES for process in gpu["processes"]}
    return [by_pid[peer.process.pid] // MIB for peer in peers]


def hand_over(exporter: Peer, importer: Peer, path: Path) -> None:
    """Creates, maps, exports and imports 64 MiB by file descriptor; both know `handle`, the exporter `address`."""
    importer.tell(f"listen({str(path)!r})")
    exporter.tell("handle = create(64 * MIB); address = map_in(handle, 64 * MIB); fd = export(handle)")
    exporter.tell(f"send(fd, {str(path)!r}); os.close(fd)")
    importer.tell("handle = brought(receive())")


def test_imported_physical_memory_is_the_same_and_paid_once(
    node: Node, peers: tuple[Peer, Peer], tmp_path: Path
) -> None:
    """Both processes see each other's bytes.

    The exporter is charged while it has the memory, and then the importer.
    """
    exporter, importer = peers
    hand_over(exporter, importer, tmp_path / "door")
    importer.tell("address = map_in(handle, 64 * MIB); put(address, 9)")
    assert exporter.ask("show(get(address))") == 9
    assert held(node, exporter, importer) == [64, 0]
    exporter.tell("unmap(address, 64 * MIB)")
    assert held(node, exporter, importer) == [64, 0]
    exporter.tell("release(handle)")
    assert held(node, exporter, importer) == [0, 64]
    assert importer.ask("show(get(address))") == 9
    importer.tell("release(handle)")
    assert held(node, exporter, importer) == [0, 64]
    importer.tell("unmap(address, 64 * MIB)")
    assert held(node, exporter, importer) == [0, 0]


@pytest.mark.parametrize("first", [0, 1])
def test_a_kill_of_either_side_leaves_the_other_side_its_memory_and_nothing_else(
    node: Node, peers: tuple[Peer, Peer], tmp_path: Path, first: int
) -> None:
    """A kill of the exporter moves the charge to the importer, and one of the importer changes nothing.

    After both nothing is charged.
    """
    hand_over(*peers, tmp_path / "door")
    peers[first].kill()
    other = peers[1 - first]
    assert held(node, other) == [64]
    assert other.ask("show(get(address if 'address' in globals() else map_in(handle, 64 * MIB)))") == 0
    other.kill()
    assert node.used_bytes() == 0
    fresh = Peer(node)
    assert held(node, fresh) == [0], "whoever gets the slot next inherits nothing"
    fresh.kill()


def test_a_descriptor_under_way_keeps_the_memory_for_whoever_takes_it(
    node: Node, peers: tuple[Peer, Peer], tmp_path: Path
) -> None:
    """After export, release and import the importer is charged as for its own memory."""
    exporter, importer = peers
    path = str(tmp_path / "door")
    importer.tell(f"listen({path!r})")
    exporter.tell("handle = create(64 * MIB); put(map_in(handle, 64 * MIB), 5)")
    exporter.tell(f"send(export(handle), {path!r})")
    exporter.kill()
    assert node.used_bytes() == CONTEXT_BYTES
    importer.tell("handle = brought(receive())")
    assert held(node, importer) == [64]
    assert importer.ask("show(get(map_in(handle, 64 * MIB)))") == 5


def test_only_what_was_meant_to_be_exported_is(peers: tuple[Peer, Peer]) -> None:
    """A handle without the export type, a foreign file, and another type of handle are refused."""
    seen = peers[0].ask("""
fd = INT()
show([cuda.result("cuMemExportToShareableHandle", byref(fd), create(2 * MIB, handle_types=0), 1, U64(0)),
      cuda.result("cuMemExportToShareableHandle", byref(fd), create(2 * MIB), 8, U64(0)),
      cuda.result("cuMemImportFromShareableHandle", byref(U64()), PTR(0), 1),
      cuda.result("cuMemImportFromShareableHandle", byref(U64()), PTR(999), 1)])
""")
    invalid = "CUDA_ERROR_INVALID_VALUE"
    assert seen == [invalid, "CUDA_ERROR_NOT_SUPPORTED", invalid, invalid]


@pytest.mark.parametrize("size", [4096, 64 * MIB])
def test_an_ipc_handle_opens_the_exporters_memory(node: Node, peers: tuple[Peer, Peer], size: int) -> None:
    """The contents survive the export.

    The importer's mapping outlives the exporter's free and is then charged to the importer.
    """
    exporter, importer = peers
    mib = max(size, 2 * MIB) // MIB
    exporter.tell(f"spacer, address = alloc(512), alloc({size}); put(address, 3)")
    handle = exporter.ask("show(offered(address))")
    importer.tell(f"address = opened({handle!r}); again = opened({handle!r})")
    assert importer.ask("show([get(address), address == again])") == [3, True]
    importer.tell("put(address, 4)")
    assert exporter.ask("show(get(address))") == 4
    total = mib if size < MIB else mib + 2  # a small one shares the spacer's block
    assert held(node, exporter, importer) == [total, 0]
    exporter.tell("free(address); free(spacer)")
    assert held(node, exporter, importer) == [0, mib]
    importer.tell("cuda.cuIpcCloseMemHandle(U64(address))")
    assert importer.ask("show(get(address))") == 4
    importer.tell("cuda.cuIpcCloseMemHandle(U64(address))")
    assert held(node, exporter, importer) == [0, 0]
    assert (
        importer.ask("show(cuda.result('cuIpcCloseMemHandle', U64(address)))") == "CUDA_ERROR_INVALID_VALUE"
    )


def test_ipc_handles_are_refused_where_the_driver_refuses_them(peers: tuple[Peer, Peer]) -> None:
    """An IPC handle is refused in its own process, for pooled memory, after the exporter's end, and with other flags.

    A free of an import is refused too.
    """
    exporter, importer = peers
    handle = exporter.ask("address = alloc(4 * MIB); show(offered(address))")
    assert exporter.ask(f"""
pooled = U64()
cuda.cuMemAllocAsync(byref(pooled), SIZE(MIB), None)
show([cuda.result("cuIpcOpenMemHandle_v2", byref(U64()), opaque({handle!r}), 1),
      cuda.result("cuIpcGetMemHandle", byref(Opaque()), pooled),
      cuda.result("cuIpcGetMemHandle", byref(Opaque()), U64(address + 1024))])
""") == ["CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_VALUE"]
    seen = importer.ask(
        f"address = opened({handle!r})\n"
        f"show([cuda.result('cuIpcOpenMemHandle_v2', byref(U64()), opaque({handle!r}), 0),"
        " cuda.result('cuMemFree_v2', U64(address))])"
    )
    assert seen == ["CUDA_ERROR_INVALID_VALUE"] * 2
    importer.tell("cuda.cuIpcCloseMemHandle(U64(address))")
    exporter.kill()
    late = f"show(cuda.result('cuIpcOpenMemHandle_v2', byref(U64()), opaque({handle!r}), 1))"
    assert importer.ask(late) == "CUDA_ERROR_INVALID_VALUE"


def test_the_importers_context_takes_its_mappings_with_it(node: Node, peers: tuple[Peer, Peer]) -> None:
    """A reset of the primary context closes the mappings that it had opened."""
    exporter, importer = peers
    handle = exporter.ask("address = alloc(64 * MIB); show(offered(address))")
    importer.tell(f"opened({handle!r})")
    exporter.tell("free(address)")
    assert held(node, exporter, importer) == [0, 64]
    importer.tell("cuda.cuDevicePrimaryCtxReset_v2(0); cuda.context()")
    assert held(node, exporter, importer) == [0, 0]


def test_a_pool_can_be_shared_pointer_by_pointer(
    node: Node, peers: tuple[Peer, Peer], tmp_path: Path
) -> None:
    """The exporter is charged for its pool. The importer maps single pointers and cannot allocate from the pool."""
    exporter, importer = peers
    path = str(tmp_path / "door")
    importer.tell(f"listen({path!r})")
    exporter.tell(f"""
pool, fd, address = PTR(), INT(), U64()
cuda.cuMemPoolCreate(byref(pool), byref(PoolProps(1, 1, Location(1, 0))))
cuda.cuMemPoolSetAttribute(pool, 4, byref(U64(1 << 40)))
cuda.cuMemAllocFromPoolAsync(byref(address), SIZE(5 * MIB), pool, None); put(address.value, 6)
cuda.cuMemPoolExportToShareableHandle(byref(fd), pool, 1, U64(0)); send(fd.value, {path!r})
""")
    data = exporter.ask(
        "data = Opaque(); cuda.cuMemPoolExportPointer(byref(data), address); show(bytes(data.bytes).hex())"
    )
    seen = importer.ask(f"""
pool, address = PTR(), U64()
cuda.cuMemPoolImportFromShareableHandle(byref(pool), PTR(receive()), 1, U64(0))
refused = cuda.result("cuMemAllocFromPoolAsync", byref(U64()), SIZE(MIB), pool, None)
cuda.cuMemPoolImportPointer(byref(address), pool, byref(opaque({data!r})))
show([refused, get(address.value)])
""")
    assert seen == ["CUDA_ERROR_INVALID_VALUE", 6]
    assert held(node, exporter, importer) == [32, 0]
    processes = node.book()[0]["processes"]
    assert [(row["pooled_bytes"] // MIB, row["pooled_free_bytes"] // MIB) for row in processes] == [
        (32, 27),
        (0, 0),
    ]
    exporter.kill()
    assert held(node, importer) == [5]
    importer.tell("cuda.cuMemFreeAsync(address, None)")
    assert held(node, importer) == [0]
