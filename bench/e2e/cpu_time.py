"""The CPU time that the programs of the node have used so far, with that of the children for which they waited.

The namespaces of a run show its own processes alone. A program that ends leaves its time to its parent: that of runc
is the shim's, that of `mount` the kubelet's, and that of CNI's plugins containerd's.
"""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def used_ticks() -> Counter[str]:
    """CPU time by program, in the kernel's ticks; parts of ours by their module."""
    found: Counter[str] = Counter()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        found[_name(words)] += sum(map(int, fields[11:15]))
    return found


def per_pod_ms(spent_ticks: Mapping[str, int], pods: int) -> dict[str, float]:
    """Milliseconds for each pod, by program, the largest first, and in all; less than a millisecond is left out."""
    each = {name: 1000 * ticks / TICKS_PER_S / pods for name, ticks in spent_ticks.items()}
    largest = sorted((one for one in each.items() if one[1] >= 1), key=lambda one: -one[1])
    return {"all": round(sum(each.values()), 1), **{name: round(ms, 1) for name, ms in largest}}


def _name(words: list[str]) -> str:
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return Path(words[0]).name
