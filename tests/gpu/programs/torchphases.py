"""The three phases of a PyTorch program: some work, filling its line until torch reports an error, the work again.

Each program beside this one supplies its work. It runs in an interpreter with torch, which may differ from the
project's.
"""

import math
from collections.abc import Callable

import torch  # type: ignore[import-not-found]

from tests.gpu.programs.phases import tell, wait

PIECE_BYTES = 64 << 20
MOST_PIECES = 1024


def piece() -> object:
    """Allocate some memory and write to it."""
    return torch.zeros(PIECE_BYTES, dtype=torch.uint8, device="cuda")


def fill() -> None:
    """Allocate until a piece is refused, report that error, and free all pieces when the test goes on."""
    hoard: list[object] = []
    refused = "none"
    while len(hoard) < MOST_PIECES:
        try:
            hoard.append(piece())
        except torch.cuda.OutOfMemoryError as error:
            refused = type(error).__name__
            break
    torch.cuda.synchronize()
    tell("full", held_bytes=len(hoard) * PIECE_BYTES, refused=refused)
    wait()


def run(work: Callable[[], float]) -> None:
    """Go through the phases; `work` returns a number that is finite if it went well."""
    before = [work() for _ in range(3)]
    piece()
    torch.cuda.synchronize()
    tell(
        "warm",
        total_bytes=torch.cuda.mem_get_info()[1],
        properties_bytes=torch.cuda.get_device_properties(0).total_memory,
        is_finite=all(map(math.isfinite, before)),
        version=torch.__version__,
        allocator=torch.cuda.get_allocator_backend(),
    )
    wait()
    fill()
    torch.cuda.empty_cache()
    after = work()
    torch.cuda.synchronize()
    tell("done", is_finite=math.isfinite(after))
