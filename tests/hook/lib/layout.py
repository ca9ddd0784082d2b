"""The layout of the structures that C and Python share, as Python has it.

Run as a program, this module prints the list of structures and fields for `programs/offsets.c`.
"""

import ctypes
import sys
from typing import Final

from plimsoll.broker.datagrams import Message
from plimsoll.broker.header import c_name
from plimsoll.broker.pages import Counts, Cpus, GpuLimit, Limits, Measured, MeasuredSlot, Slot

STRUCTURES: Final = (GpuLimit, Limits, Cpus, MeasuredSlot, Measured, Slot, Counts, Message)


def offsets() -> list[str]:
    """Each structure with its size, and each of its fields with offset and size."""
    rows = []
    for structure in STRUCTURES:
        rows.append(f"{c_name(structure)} {ctypes.sizeof(structure)}")
        for field in structure._fields_:
            descriptor = getattr(structure, field[0])
            rows.append(f"{field[0]} {descriptor.offset} {descriptor.size}")
    return rows


def _listed() -> list[str]:
    """The same structures and fields for the C program, without numbers."""
    rows = []
    for structure in STRUCTURES:
        name = c_name(structure)
        rows.append(f"STRUCTURE({name})\n")
        rows += [f"FIELD({name}, {field[0]})\n" for field in structure._fields_]
    return rows


if __name__ == "__main__":
    sys.stdout.writelines(_listed())
