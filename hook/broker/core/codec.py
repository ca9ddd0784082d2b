"""The bytes of `limits` and `counts`: what the broker writes into the one and reads from the other.

`plimsoll.broker.pages` defines the structures; here they are filled in and taken apart, without a file in sight.
"""

import ctypes
import struct
from dataclasses import dataclass
from typing import Final

from hook.broker.core.ids import SlotUse
from plimsoll.broker.pages import (
    COUNTS_MAGIC,
    FLAG_BEST_EFFORT,
    FLAG_WHOLE_GPUS,
    LIMITS_MAGIC,
    MAX_GPUS,
    MAX_SLOTS,
    VERSION,
    Counts,
    GpuLimit,
    Limits,
    Slot,
    SlotWork,
)
from plimsoll.broker.wire import ContainerLines, Line
from plimsoll.ids import GpuUuid

LIMITS_BYTES: Final = ctypes.sizeof(Limits)
COUNTS_BYTES: Final = ctypes.sizeof(Counts)
SLOT_BYTES: Final = ctypes.sizeof(Slot)
WORK_BYTES: Final = ctypes.sizeof(SlotWork)
SLOTS_END: Final = int(Counts.works.offset)
"""How much of `counts` must be read to see every slot."""

GENERATION_OFFSET: Final = Limits.generation.offset
BODY_OFFSET: Final = GENERATION_OFFSET + 8
"""All that may change in `limits` follows the generation that guards it."""

WORD: Final = struct.Struct("<Q")
COUNTS_HEAD: Final = struct.Struct("<QII")
"""Magic, version and size of `counts`: what never changes in it."""

_OWNER: Final = struct.Struct(f"<{SLOT_BYTES // 8}Q")


@dataclass(frozen=True, slots=True)
class PageNumbers:
    """What stands beside the line of one container on one GPU, and changes while its processes run.

    Attributes:
        granted_bytes: up to here without asking the broker; the line, unless the node overcommits.
        context_bytes: what a new context costs there; 0 = not measured yet.
        excess_bytes: what NVML shows of the container past its words.
        is_wanted: somebody waits for memory there.
    """

    granted_bytes: int
    context_bytes: int = 0
    excess_bytes: int = 0
    is_wanted: bool = False


Numbers = tuple[PageNumbers, ...]
"""One per line of a container, in their order."""


def new_limits(container: ContainerLines, numbers: Numbers) -> bytes:
    """A whole `limits` file, in its first consistent generation."""
    return _limits(container, numbers, generation=2)


def limits_body(container: ContainerLines, numbers: Numbers) -> bytes:
    """What follows the generation in `limits`."""
    return _limits(container, numbers, generation=0)[BODY_OFFSET:]


def granted_by(page: bytes) -> dict[GpuUuid, int]:
    """What a `limits` file grants, by GPU; empty for one that is damaged.

    One that a dying broker left half written may say either number: both were granted in their time.
    """
    if len(page) != LIMITS_BYTES:
        return {}
    limits = Limits.from_buffer_copy(page)
    if (limits.magic, limits.version) != (LIMITS_MAGIC, VERSION) or limits.gpu_count > MAX_GPUS:
        return {}
    gpus = limits.gpus[: limits.gpu_count]
    return {GpuUuid(gpu.uuid.decode("ascii", "replace")): gpu.granted_bytes for gpu in gpus}


def counts_head(slots_touched: int = 0) -> bytes:
    """The head of `counts`; the rest of a new file is zero."""
    return COUNTS_HEAD.pack(COUNTS_MAGIC, VERSION, COUNTS_BYTES) + struct.pack("<I", slots_touched)


def owner_offset(slot: int) -> int:
    """Where a slot's owner stands in `counts`."""
    assert 0 <= slot < MAX_SLOTS
    return int(Counts.slots.offset) + slot * SLOT_BYTES + int(Slot.owner.offset)


def uses_offset(slot: int) -> int:
    """Where the words begin that a slot's owner wrote: `used_bytes`, then `denied_count`."""
    return owner_offset(slot) + int(Slot.used_bytes.offset)


def vacating_offset(slot: int) -> int:
    """Where a slot's mark stands that the broker is about to clear it."""
    return owner_offset(slot) + int(Slot.is_vacating.offset)


def work_offset(slot: int) -> int:
    """Where a process's work stands that owns this slot: whose it is, and then its words for each GPU."""
    assert 0 <= slot < MAX_SLOTS
    return int(Counts.works.offset) + slot * WORK_BYTES


_CHANGED: Final = Slot.changed_ns.offset // 8

USES_BYTES: Final = 8 * (MAX_GPUS + 1)
assert Slot.denied_count.offset == Slot.used_bytes.offset + 8 * MAX_GPUS


def claimed_slots(counts: bytes, gpu_count: int) -> tuple[SlotUse, ...]:
    """Every claimed slot of a `counts` file.

    All slots are looked at: `slots_touched` is for the library, and a tenant may write anything there.
    An owner writes `changed_ns` before it changes `used_bytes`, and the kernel copies upwards through memory. So the
    stamp that is found belongs to the words that are found, or to later ones.

    Args:
        counts: the whole file; slots missing from a truncated one count as free.
        gpu_count: how many of `used_bytes` mean something.
    """
    slots = (counts[owner_offset(0) + n * SLOT_BYTES :][:SLOT_BYTES] for n in _claimed(counts))
    return tuple(
        SlotUse(n, words[0], tuple(words[1 : 1 + gpu_count]), words[1 + MAX_GPUS], words[_CHANGED])
        for n, words in zip(_claimed(counts), map(_OWNER.unpack, slots), strict=True)
    )


def _claimed(counts: bytes) -> list[int]:
    whole = max(0, (len(counts) - owner_offset(0)) // SLOT_BYTES)
    return [n for n in range(min(whole, MAX_SLOTS)) if WORD.unpack_from(counts, owner_offset(n)) != (0,)]


def _limits(container: ContainerLines, numbers: Numbers, generation: int) -> bytes:
    flags = FLAG_WHOLE_GPUS * container.whole | FLAG_BEST_EFFORT * container.best_effort
    limits = Limits(
        magic=LIMITS_MAGIC,
        version=VERSION,
        size=LIMITS_BYTES,
        generation=generation,
        gpu_count=len(container.lines),
        flags=flags,
    )
    for place, (line, changing) in enumerate(zip(container.lines, numbers, strict=True)):
        limits.gpus[place] = _gpu_limit(line, changing)
    return bytes(limits)


def _gpu_limit(line: Line, changing: PageNumbers) -> GpuLimit:
    return GpuLimit(
        uuid=line.gpu.encode("ascii"),
        line_bytes=line.line_bytes,
        granted_bytes=changing.granted_bytes,
        context_bytes=changing.context_bytes,
        share_pct=line.share_pct,
        limit_pct=line.limit_pct,
        excess_bytes=changing.excess_bytes,
        is_wanted=int(changing.is_wanted),
    )
