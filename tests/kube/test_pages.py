"""A page of a list is read in pieces of bounded size."""

import asyncio
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.kube.pages import PIECE_BYTES, pieces
from tests.kube.faults import faulty_server, pod
from tests.kube.reflected import reflecting


@given(st.lists(st.integers(1, 2 * PIECE_BYTES), max_size=9))
def test_pieces_hold_all_documents_and_end_once_they_are_large(sizes: list[int]) -> None:
    """For any sizes the pieces are the documents in order, and each is large by its last document alone."""
    documents = [msgspec.Raw(b" " * size) for size in sizes]
    found = [[memoryview(one).nbytes for one in piece] for piece in pieces(documents)]
    assert [size for piece in found for size in piece] == sizes
    assert all(piece and sum(piece[:-1]) < PIECE_BYTES for piece in found)
    assert all(sum(piece) >= PIECE_BYTES for piece in found[:-1])


async def test_other_tasks_run_while_a_list_of_large_pods_is_read(tmp_path: Path) -> None:
    """The loop turns between two large pods of one page."""
    async with faulty_server(tmp_path) as server:
        large = {"note": "x" * PIECE_BYTES}
        for name in "abcd":
            server.pods[name] = pod(name, 1)
            server.pods[name]["metadata"]["annotations"] = large
        async with reflecting(server.kubeconfig) as image:
            seen: set[int] = set()
            while "synced" not in image.emitted:
                seen.add(len(image.pods))
                await asyncio.sleep(0)
    assert {1, 2, 3} <= seen
