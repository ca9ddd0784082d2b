"""Percent of a GPU's memory, in bytes: the rule behind `plimsoll.dev/gpu-memory-percent`.

A percentage counts of the usable bytes of each GPU, and is rounded down to whole MiB, but never below 1 MiB. So
percentages that sum up to 100 fit on one GPU together, unless the GPU has less than 100 MiB.
"""

from plimsoll.quantity import MIB


def bytes_of(memory_pct: int, usable_bytes: int) -> int:
    """The bytes that a percentage, 1 to 100, stands for on a GPU with this many usable bytes."""
    return max(usable_bytes * memory_pct // 100 // MIB, 1) * MIB


def most_pct(usable_bytes: int, free_bytes: int) -> int:
    """The largest percentage of a GPU whose bytes fit into `free_bytes`, up to 100; 0 if not even 1 does."""
    if free_bytes < MIB:
        return 0
    past_bytes = (free_bytes // MIB + 1) * MIB  # the least size that no longer fits
    return min((100 * past_bytes - 1) // usable_bytes, 100)
