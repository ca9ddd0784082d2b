"""The small files that broker and preload library share, defined once for Python and for C.

The broker makes two directories per container. The first is mounted read-only. It has `limits`, `measured`, `gate`,
the socket `hook.sock`, `ld.so.preload`, and `cpus` where the container is bound to CPUs. The second is writable and
has `counts`. `python -m plimsoll.broker.header > pages.h` writes the C header from the structures here and in
`datagrams`, with a static assertion for every offset, so the two languages cannot drift apart.

What always holds:

* `limits` is written by the broker alone. `generation` is even when the file is consistent, and odd while
  the broker rewrites it. A reader copies the fields, and retries if `generation` changed meanwhile.
* `measured` is written by the broker alone. It shows each process's part of the excess in `limits`. An excess that
  grows is written into `limits` first, one that falls into `measured` first.
* `gate` is written by the broker alone, word by word. The file is never replaced while its container lives, because
  processes wait on its `word` by futex.
* `cpus` is written by the broker alone, whole, before the container's first program starts.
* `exports` has the pieces of memory that a container's processes pass on to each other.
* `ld.so.preload` names the library to glibc's loader, and lies over the container's file of that name. It only grows,
  and is never replaced, because a mount keeps the file itself.
* `counts` has one slot per process, and beside the slots the words of each process's work. A process writes only its
  own slot. The broker clears the slot of a process that died or became another program. No total is stored: a reader
  sums the slots.
* Every time that crosses a page or a socket is of the *machine's clock*: CLOCK_MONOTONIC, or the time since boot, as
  the first time namespace shows it. Each writer takes off the shift of its own namespace (`plimsoll.part.clock`,
  `hook/lib/clock.c`), because broker and programs may run in different ones. These cross:

  | time | writer | readers |
  | --- | --- | --- |
  | `Gate.beat_ns` | broker | library: is the broker lost?; the next broker: did programs run unheld? |
  | `Work.launched_ns`, `executed_ns`, `looked_ns` | library | broker: since when has the work been unfinished? |
  | `Work.unfinished_ns`, `sure_ns`, `sliced_ns`, `queued_ns` | library | broker; these are lengths, not moments |
  | `Slot.changed_ns` | library | broker: is a measurement older than the words? |
  | `Slot.owner`, high half: start time in ticks | library | broker, other processes of the same namespaces |
  | `Message.owner` | library | broker, which compares it with its own reading of `/proc` |
  | `MeasuredSlot.measured_ns` | broker | library: was this process measured since it made its context? |
  | `Measured.began_ns`, `start_ticks` on the control socket | monitor | broker: as `changed_ns`; which process? |
  | `start_ticks` in journal and announcements | broker | the next broker, the monitor |
  | `time` in announcements and log | broker | people; the wall clock, never compared |

  A start time is rounded to ticks after the shift. So a namespace that is shifted by parts of a tick may show one
  tick more, and the broker takes a word that is one tick off for the same process.
* All numbers are little-endian and naturally aligned. A field that one side may read while the other writes it is one
  aligned machine word.
"""

import ctypes
from typing import Final

from plimsoll.cpus import MOST_CPUS

MAX_GPUS: Final = 16
"""The most GPUs per container: one NVIDIA machine has no more today."""

MAX_SLOTS: Final = 256
"""The most processes per container that hold GPU memory at once; the 257th is refused with a message."""

PEAK_GPUS: Final = 8
"""The GPUs of a container, in the order of its lines, on which each process records its highest use. On
further GPUs only the broker's readings show the use."""

MAX_EXPORTS: Final = 1024
"""The most pieces of memory that a container's processes offer to other processes at once. Of further pieces nobody
knows that they are the container's own: an import of one counts as if it came from outside."""

UUID_BYTES: Final = 48
"""Room for `GPU-` and 36 characters, or `MIG-` likewise, with its terminating zero."""

LIMITS_MAGIC: Final = 0x314D494C4D494C50  # "PLIMLIM1", little-endian
COUNTS_MAGIC: Final = 0x31544E434D494C50  # "PLIMCNT1"
GATE_MAGIC: Final = 0x315441474D494C50  # "PLIMGAT1"
CPUS_MAGIC: Final = 0x315550434D494C50  # "PLIMCPU1"
VERSION: Final = 2

LIMITS_NAME: Final = "limits"
MEASURED_NAME: Final = "measured"
COUNTS_NAME: Final = "counts"
EXPORTS_NAME: Final = "exports"
GATE_NAME: Final = "gate"
CPUS_NAME: Final = "cpus"
PRELOADS_NAME: Final = "ld.so.preload"
SOCKET_NAME: Final = "hook.sock"

CONTAINER_LIMITS_DIR: Final = "/run/plimsoll/limits"
CONTAINER_COUNTS_DIR: Final = "/run/plimsoll/counts"
"""A container's two directories, as the container sees them. The library reads the environment instead only where the
first does not exist (no container), so that a tenant cannot substitute limits of its own."""

LIMITS_DIR_VARIABLE: Final = "PLIMSOLL_LIMITS_DIR"
COUNTS_DIR_VARIABLE: Final = "PLIMSOLL_COUNTS_DIR"

FLAG_WHOLE_GPUS: Final = 1
"""The container owns its GPUs alone: its memory is counted, and nothing is limited or throttled."""

FLAG_BEST_EFFORT: Final = 2
"""The container declared no memory: `line_bytes` is the memory that promises leave free, and may sink later."""

EXPORT_LIVE: Final = 1
"""The exporter holds the memory, which is in its word."""

EXPORT_ORPHANED: Final = 2
"""The exporter let go of the memory, or died. The memory counts by itself as long as a living process imports it."""

GATE_OPEN: Final = 0
"""Launches pass and are not recorded: no other container wants these GPUs, and the container's limit is 100."""

GATE_METERED: Final = 1
"""Launches pass while less than `Gate.ahead_us` of work is queued, and the time of their execution is recorded."""

GATE_SHUT: Final = 2
"""Launches stand: until the gate opens if nothing of the container executes, else for a bounded time."""

GATE_STATES: Final = 3
"""Mask of the bits of `Gate.word` that hold one of the three states."""

LOST_NS: Final = 3_000_000_000
"""A gate with an older beat belongs to no broker at work. The library then holds the container to its limit alone. On
a busy machine a beat may be late."""

LATE_NS: Final = 500_000_000
"""The broker beats four times a second. If a beat is older than this, the library asks the kernel whether the broker
has ended. If so, the gate belongs to no broker at once."""

SILENT_NS: Final = 100_000_000
"""A process with unfinished work or a waiting launch checks its work every 5 to 50 ms, and writes `looked_ns`. A
process that has not checked for this long is stopped, or gets no processor time. The broker then ignores its words
until it checks again."""

GATE_STEP: Final = 4
"""Each change of `Gate.word` adds this, modulo 2³², so that no futex wait misses a change."""


class GpuLimit(ctypes.LittleEndianStructure):
    """A container's limits on one GPU."""

    _pack_ = 8
    _fields_ = (
        ("uuid", ctypes.c_char * UUID_BYTES),
        ("line_bytes", ctypes.c_uint64),  # the declared memory, which the container never passes
        # Up to here without asking the broker; = line unless overcommitted
        ("granted_bytes", ctypes.c_uint64),
        # What a new context of a process costs here; 0 = not yet measured
        ("context_bytes", ctypes.c_uint64),
        ("share_pct", ctypes.c_uint32),  # compute time guaranteed
        ("limit_pct", ctypes.c_uint32),  # compute time at most
        # Memory that NVML shows for this container's processes past their own words (modules, contexts older than
        # `context_bytes`, memory kept by pools), as last measured. It counts against line and grant.
        ("excess_bytes", ctypes.c_uint64),
        # Not 0: an allocation waits for memory here; report each free (KIND_FREED)
        ("is_wanted", ctypes.c_uint64),
        # not 0: NVML's figures for this GPU reach the broker, so a context of unknown cost is soon measured
        ("is_measured", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 3),
    )


class Limits(ctypes.LittleEndianStructure):
    """The whole `limits` file."""

    _pack_ = 8
    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),  # of this structure; a reader that expects another size refuses the file
        ("generation", ctypes.c_uint64),  # odd while being rewritten
        ("gpu_count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 4),
        ("gpus", GpuLimit * MAX_GPUS),
    )


class Cpus(ctypes.LittleEndianStructure):
    """The whole `cpus` file: the CPUs that a container's processes are bound to.

    It is a file of its own, because `limits` has no room for this many bits.
    """

    _pack_ = 8
    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        # Bit n of word m: CPU 64 m + n, as Linux numbers them
        ("words", ctypes.c_uint64 * (MOST_CPUS // 64)),
    )


class Work(ctypes.LittleEndianStructure):
    """A process's work on one GPU, unfinished and finished; written by that process alone.

    A *burst* begins with a launch that found nothing of the process unfinished on this GPU, and ends when all of its
    work there is finished. The words from `settled` to `begun` change together: the process raises `begun`, writes
    the others, and then sets `settled` to `begun`. A reader that reads upwards through memory and finds the two equal
    has a consistent copy.
    """

    _pack_ = 8
    _fields_ = (
        ("settled", ctypes.c_uint64),
        # The machine's clock at the start of the unfinished burst; 0 for none
        ("launched_ns", ctypes.c_uint64),
        ("executed_ns", ctypes.c_uint64),  # when the GPU began to execute that burst; 0 while not known
        ("unfinished_ns", ctypes.c_uint64),  # the length of all ended bursts, from launch to end
        ("sure_ns", ctypes.c_uint64),  # ended bursts: the first `Gate.slice_us` of each burst's execution
        ("sliced_ns", ctypes.c_uint64),  # ended bursts: the rest of their execution, time-sliced with others'
        ("begun", ctypes.c_uint64),
        # The words below stand by themselves.
        ("queued_ns", ctypes.c_uint64),  # the library's estimate of the unfinished work's execution time
        ("waiting", ctypes.c_uint64),  # threads that wait at the gate to launch here
        # The machine's clock when the process last checked its unfinished work
        ("looked_ns", ctypes.c_uint64),
    )


class Slot(ctypes.LittleEndianStructure):
    """A process's memory; written by that process, cleared by the broker after its death."""

    _pack_ = 8
    _fields_ = (
        # Low half: pid as the process itself sees it. High half: the low 32 bits of its start time in clock
        # ticks since the machine's boot (/proc/self/stat, field 22, less the namespace's shift). Claimed by
        # compare-and-swap from 0.
        ("owner", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64 * MAX_GPUS),  # reserved or held, in the order of `Limits.gpus`
        ("denied_count", ctypes.c_uint64),
        # Reservations of this process that are neither granted nor withdrawn. Low half: their present number. High
        # half: the number ever begun. A refused process sees by it whether another reservation, soon to be withdrawn,
        # was the cause.
        ("attempts", ctypes.c_uint64),
        ("contexts", ctypes.c_uint64),  # bit n: this process has a context on GPU n, as NVML would list it
        # Not 0: the broker is about to clear this slot, as its owner became a program that does not map `counts`.
        # The owner's next program claims another slot. The broker sets this word; the slot's next claimant clears it.
        ("is_vacating", ctypes.c_uint64),
        # The machine's clock just before `used_bytes` last changed. A measurement that began earlier does not show
        # how much the process holds beyond its words.
        ("changed_ns", ctypes.c_uint64),
        # The namespaces in which `owner` is valid: the inode of the PID namespace in the low half, that of the time
        # namespace in the high half, all XOR `owner`, so that an earlier owner's value never matches this owner. Only
        # a process in the same namespaces can conclude from `owner` that the owner is dead.
        ("namespaces", ctypes.c_uint64),
        # The largest value of each of the first words of `used_bytes` after an allocation that succeeded. A request
        # of another thread that is just being refused may be included.
        ("peak_bytes", ctypes.c_uint64 * PEAK_GPUS),
        # Bit n: on GPU n the process made a context of unknown cost, and holds still until the broker has measured
        # the process (`Measured`).
        ("awaiting", ctypes.c_uint32),
        # Bit n: it has gone on without that measurement, which did not come in time.
        ("in_vain", ctypes.c_uint32),
    )


class MeasuredSlot(ctypes.LittleEndianStructure):
    """The last measurement of the process in the slot of the same number. GPUs are in the order of `Limits.gpus`."""

    _pack_ = 8
    _fields_ = (
        ("owner", ctypes.c_uint64),  # as in the slot: a measurement of another owner is ignored
        # The machine's clock when the latest measurement of the process began that counts.
        ("measured_ns", ctypes.c_uint64 * MAX_GPUS),
        ("excess_bytes", ctypes.c_uint64 * MAX_GPUS),  # its part of `GpuLimit.excess_bytes`
    )


class Measured(ctypes.LittleEndianStructure):
    """The whole `measured` file, beside `limits`. All zeros is the empty file."""

    _pack_ = 8
    _fields_ = (("slots", MeasuredSlot * MAX_SLOTS),)


class SlotWork(ctypes.LittleEndianStructure):
    """The work of the process that owns the slot of the same number. It is apart, as it is read far more often."""

    _pack_ = 8
    _fields_ = (
        ("owner", ctypes.c_uint64),  # as in the slot: work under another owner is ignored
        ("gpus", Work * MAX_GPUS),  # in the order of `Limits.gpus`
    )


class Counts(ctypes.LittleEndianStructure):
    """The whole `counts` file."""

    _pack_ = 8
    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("slots_touched", ctypes.c_uint32),  # no slot at or past this index was ever claimed; only grows
        ("reserved32", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 5),
        ("slots", Slot * MAX_SLOTS),
        ("works", SlotWork * MAX_SLOTS),
    )


class Export(ctypes.LittleEndianStructure):
    """A piece of GPU memory that a process offered to others; written by that process, orphaned by the broker too."""

    _pack_ = 8
    _fields_ = (
        # Computed from what crosses between the processes: a handle's bytes, or the identity of a file. 0: no entry.
        ("key", ctypes.c_uint64),
        ("owner", ctypes.c_uint64),  # the exporter's owner word; claimed by compare-and-swap
        ("bytes", ctypes.c_uint64),
        ("gpu", ctypes.c_uint32),  # its place in `Limits.gpus`
        ("state", ctypes.c_uint32),  # 0: never used; EXPORT_LIVE or _ORPHANED
    )


class Imports(ctypes.LittleEndianStructure):
    """The pieces that the owner of the slot of the same number imports; written as the slot is."""

    _pack_ = 8
    _fields_ = (("words", ctypes.c_uint64 * (MAX_EXPORTS // 64)),)  # bit n of word m: export 64 m + n


class Exports(ctypes.LittleEndianStructure):
    """The whole `exports` file, beside `counts`: memory that crosses between a container's processes.

    Memory counts once: in its exporter's word, and by this file once the exporter has let go of it or died. An import
    of anything else counts in the importer's word. All zeros is the empty file.
    """

    _pack_ = 8
    _fields_ = (
        ("touched", ctypes.c_uint32),  # no export at or past this index was ever claimed; only grows
        ("reserved32", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 7),
        ("exports", Export * MAX_EXPORTS),
        ("imports", Imports * MAX_SLOTS),
    )


class Gate(ctypes.LittleEndianStructure):
    """The whole `gate` file: whether a container's processes may put work on its GPUs now.

    A single gate for all its GPUs, so that a collective never has one GPU at work and another waiting.
    """

    _pack_ = 8
    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("word", ctypes.c_uint32),  # futex: GATE_OPEN, _METERED or _SHUT; a count of changes above
        # Processes that lately had work on one of these GPUs, the largest number; at least 1
        ("sharers", ctypes.c_uint32),
        # The machine's clock at the latest beat; the broker writes it four times a second while a launch may stand
        # here. See LOST_NS and LATE_NS.
        ("beat_ns", ctypes.c_uint64),
        ("ahead_us", ctypes.c_uint32),  # work that a process may queue on a GPU behind a metered gate
        ("alone_us", ctypes.c_uint32),  # work that it may queue, roughly, behind an open gate
        ("slice_us", ctypes.c_uint32),  # the hardware's time slice for each process with work, round robin
        ("reserved32", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 9),
    )
