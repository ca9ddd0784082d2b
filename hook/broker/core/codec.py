"""The bytes of `limits` and `cpus`, which the broker writes, and of `counts` and `exports`, which it reads.

`plimsoll.broker.pages` defines the structures. This module fills them in and takes them apart; it touches no file.
"""

import ctypes
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Final

from hook.broker.core.ids import HALF, SlotMeasured, SlotUse
from plimsoll.broker.pages import (
    COUNTS_MAGIC,
    CPUS_MAGIC,
    EXPORT_LIVE,
    EXPORT_ORPHANED,
    FLAG_BEST_EFFORT,
    FLAG_WHOLE_GPUS,
    LIMITS_MAGIC,
    MAX_EXPORTS,
    MAX_GPUS,
    MAX_SLOTS,
    PEAK_GPUS,
    VERSION,
    Counts,
    Cpus,
    Export,
    Exports,
    GpuLimit,
    Imports,
    Limits,
    Measured,
    MeasuredSlot,
    Slot,
    SlotWork,
)
from plimsoll.broker.wire import ContainerLines, Line
from plimsoll.cpus import parse_cpus
from plimsoll.ids import GpuUuid

LIMITS_BYTES: Final = ctypes.sizeof(Limits)
COUNTS_BYTES: Final = ctypes.sizeof(Counts)
SLOT_BYTES: Final = ctypes.sizeof(Slot)
WORK_BYTES: Final = ctypes.sizeof(SlotWork)
EXPORTS_BYTES: Final = ctypes.sizeof(Exports)
EXPORT_BYTES: Final = ctypes.sizeof(Export)
IMPORTS_BYTES: Final = ctypes.sizeof(Imports)
MEASURED_BYTES: Final = ctypes.sizeof(Measured)
SLOTS_END: Final = int(Counts.works.offset)
"""Bytes of `counts` that hold every slot."""

GENERATION_OFFSET: Final = Limits.generation.offset
BODY_OFFSET: Final = GENERATION_OFFSET + 8
"""Everything that may change in `limits` follows the generation, which guards it."""

WORD: Final = struct.Struct("<Q")
MOST: Final = (1 << 64) - 1
WORD_32: Final = struct.Struct("<I")
COUNTS_HEAD: Final = struct.Struct("<QII")
"""Magic, version and size of `counts`, which never change."""

_EXPORT: Final = struct.Struct("<QQQII")
assert _EXPORT.size == EXPORT_BYTES

_OWNER: Final = struct.Struct(f"<{SLOT_BYTES // 8}Q")


@dataclass(frozen=True, slots=True)
class PageNumbers:
    """The numbers beside a container's line on one GPU, which change while its processes run.

    Attributes:
        granted_bytes: bytes that the container may hold without asking the broker; the line, unless the node
            overcommits.
        context_bytes: bytes that a new context costs on this GPU; 0 = not measured yet.
        excess_bytes: bytes that NVML shows of the container past its words.
        is_wanted: a process waits for memory of this GPU.
        is_measured: NVML's figures for this GPU reach the broker.
    """

    granted_bytes: int
    context_bytes: int = 0
    excess_bytes: int = 0
    is_wanted: bool = False
    is_measured: bool = False


Numbers = tuple[PageNumbers, ...]
"""`PageNumbers` for each line of a container, in the order of the lines."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """A process's memory on one GPU by its own counts, now and at most so far."""

    used_bytes: int
    peak_bytes: int


def new_limits(container: ContainerLines, numbers: Numbers) -> bytes:
    """A whole `limits` file, in its first consistent generation."""
    return _limits(container, numbers, generation=2)


def limits_body(container: ContainerLines, numbers: Numbers) -> bytes:
    """The bytes that follow the generation in `limits`."""
    return _limits(container, numbers, generation=0)[BODY_OFFSET:]


def cpus_page(container: ContainerLines) -> bytes | None:
    """The whole `cpus` file; None for a container that is not bound to CPUs.

    Raises:
        InputError: the container's CPUs are no list.
    """
    bound_to = parse_cpus(container.cpus, "cpus")
    if not bound_to:
        return None
    page = Cpus(magic=CPUS_MAGIC, version=VERSION, size=ctypes.sizeof(Cpus))
    for cpu in bound_to:
        page.words[cpu // 64] |= 1 << cpu % 64
    return bytes(page)


def granted_by(page: bytes) -> dict[GpuUuid, int]:
    """The granted bytes of a `limits` file, by GPU; empty for a damaged file.

    A file that a dying broker left half written may hold either number: both were granted at some time.
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
    """The offset of a slot's owner word in `counts`."""
    assert 0 <= slot < MAX_SLOTS
    return int(Counts.slots.offset) + slot * SLOT_BYTES + int(Slot.owner.offset)


def uses_offset(slot: int) -> int:
    """The offset of the words that a slot's owner wrote: `used_bytes`, then `denied_count`."""
    return owner_offset(slot) + int(Slot.used_bytes.offset)


def vacating_offset(slot: int) -> int:
    """The offset of a slot's `is_vacating`, which says that the broker is about to clear the slot."""
    return owner_offset(slot) + int(Slot.is_vacating.offset)


def work_offset(slot: int) -> int:
    """The offset of the work of a slot's owner: the owner word, then the words for each GPU."""
    assert 0 <= slot < MAX_SLOTS
    return int(Counts.works.offset) + slot * WORK_BYTES


_PEAK: Final = Slot.peak_bytes.offset // 8

_CHANGED: Final = Slot.changed_ns.offset // 8

_AWAITING: Final = Slot.awaiting.offset // 8
assert Slot.in_vain.offset == Slot.awaiting.offset + 4

USES_BYTES: Final = 8 * (MAX_GPUS + 1)
assert Slot.denied_count.offset == Slot.used_bytes.offset + 8 * MAX_GPUS


def owners(slots: bytes) -> list[int]:
    """The owner word of each slot, 0 for a free one, from bytes that begin with the first slot's owner word."""
    whole = memoryview(slots)[: len(slots) // SLOT_BYTES * SLOT_BYTES]
    return whole.cast("Q")[:: SLOT_BYTES // WORD.size].tolist()


def exports_of_dead(exports: bytes, owner: int) -> list[int]:
    """The offsets of the states to be set to `EXPORT_ORPHANED` after an exporter's death, in an `exports` file."""
    return [
        int(Exports.exports.offset) + place * EXPORT_BYTES + int(Export.state.offset)
        for place, (_, exporter, _, _, state) in enumerate(_pieces(exports))
        if exporter == owner and state == EXPORT_LIVE
    ]


def imports_offset(slot: int) -> int:
    """The offset of the imports of a slot's owner in `exports`."""
    assert 0 <= slot < MAX_SLOTS
    return int(Exports.imports.offset) + slot * IMPORTS_BYTES


def claimed_slots(counts: bytes, gpu_count: int, exports: bytes = b"") -> tuple[SlotUse, ...]:
    """Every claimed slot of a `counts` file.

    All slots are read: `slots_touched` is for the library, and a tenant may write anything there. An owner writes
    `changed_ns` before it changes `used_bytes`, and the kernel copies upwards through memory. So the `changed_ns`
    that is read belongs to the words that are read, or to later ones.

    Args:
        counts: the whole file; slots missing from a truncated file count as free.
        gpu_count: how many entries of `used_bytes` are in use.
        exports: the whole `exports` file, read after `counts`. Memory of an exporter that is gone counts in the
            lowest slot that imports it.
    """
    slots = counts[owner_offset(0) :][: MAX_SLOTS * SLOT_BYTES]
    claimed = [
        (n, _OWNER.unpack_from(slots, n * SLOT_BYTES)) for n, owner in enumerate(owners(slots)) if owner
    ]
    inherited = _inherited(exports, [n for n, _ in claimed]) if claimed else Counter[tuple[int, int]]()
    return tuple(
        SlotUse(
            n,
            words[0],
            tuple(min(words[1 + gpu] + inherited[n, gpu], MOST) for gpu in range(gpu_count)),
            words[1 + MAX_GPUS],
            words[_CHANGED],
            words[_AWAITING] % HALF,
            words[_AWAITING] // HALF,
        )
        for n, words in claimed
    )


def measured_offset(slot: int) -> int:
    """The offset of a slot's owner in `measured`."""
    assert 0 <= slot < MAX_SLOTS
    return int(Measured.slots.offset) + slot * ctypes.sizeof(MeasuredSlot)


def measured_slot(measured: SlotMeasured) -> bytes:
    """A slot of `measured`."""
    page = MeasuredSlot(owner=measured.owner)
    page.measured_ns[: len(measured.measured_ns)] = measured.measured_ns
    page.excess_bytes[: len(measured.excess_bytes)] = measured.excess_bytes
    return bytes(page)


def lesser_measured(before: bytes, now: bytes) -> bytes:
    """A slot of `measured` that is true before a change and after it: it has the smaller one of each excess."""
    old, new = MeasuredSlot.from_buffer_copy(before), MeasuredSlot.from_buffer_copy(now)
    if old.owner == new.owner:
        old.excess_bytes[:] = list(map(min, old.excess_bytes, new.excess_bytes))
        return bytes(old)
    return bytes(len(now))


def _pieces(exports: bytes) -> list[tuple[int, int, int, int, int]]:
    """Key, owner, bytes, GPU and state of each place that was ever taken."""
    if len(exports) < EXPORTS_BYTES:
        return []
    touched = min(WORD_32.unpack_from(exports)[0], MAX_EXPORTS)
    start = int(Exports.exports.offset)
    return list(_EXPORT.iter_unpack(exports[start : start + touched * EXPORT_BYTES]))


def _inherited(exports: bytes, slots: list[int]) -> Counter[tuple[int, int]]:
    """The orphaned bytes that each slot counts, by slot and GPU."""
    inherited: Counter[tuple[int, int]] = Counter()
    orphans = [
        (place, gpu, held_bytes)
        for place, (_, _, held_bytes, gpu, state) in enumerate(_pieces(exports))
        if state == EXPORT_ORPHANED
    ]
    if orphans:
        imports = {n: int.from_bytes(exports[imports_offset(n) :][:IMPORTS_BYTES], "little") for n in slots}
        for place, gpu, held_bytes in orphans:
            heir = next((n for n in slots if imports[n] >> place & 1), None)
            if heir is not None:
                inherited[heir, gpu] += held_bytes
    return inherited


def memory_in(slot: bytes, gpu_count: int) -> tuple[int, tuple[ProcessMemory, ...]]:
    """The owner of a slot, 0 for none, and its memory on each of the container's GPUs.

    The library raises a peak after the use, so a peak below the use is not written yet.
    """
    if len(slot) < SLOT_BYTES:
        return 0, ()
    words = _OWNER.unpack(slot)
    used = words[1 : 1 + gpu_count]
    peaks = (*words[_PEAK : _PEAK + min(gpu_count, PEAK_GPUS)], *[0] * (gpu_count - PEAK_GPUS))
    return words[0], tuple(ProcessMemory(*pair) for pair in zip(used, map(max, used, peaks), strict=True))


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
        is_measured=int(changing.is_measured),
    )
