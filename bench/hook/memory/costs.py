"""The results: each measurement with its native and its hooked turns, the table, and the last line of the output."""

import datetime
import os
import platform
import statistics
from dataclasses import dataclass
from typing import Final

from bench.hook.gpu_node import GpuNode
from tests.hook.lib.hammer import Outcome
from tests.hook.lib.program import MIB

PAIRS: Final = (
    ("cuMemAlloc", 512),
    ("cuMemAlloc", 2 * MIB),
    ("cuMemAllocAsync", 2 * MIB),
    ("cuMemCreate", 2 * MIB),
)
REPORTED: Final = PAIRS[0]
"""The pair whose native cost includes no system call of the emulator, so it has the least noise."""
PROCESSES: Final = 8
CORES: Final = len(os.sched_getaffinity(0))
HAMMER_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Compared:
    """Alternating turns of native and hooked processes, all in the same unit."""

    native: list[float]
    hooked: list[float]

    @property
    def added(self) -> float:
        """The median of each hooked turn less the native one beside it."""
        return statistics.median(
            hooked - native for native, hooked in zip(self.native, self.hooked, strict=True)
        )

    def row(self, name: str, unit: str, scale: float = 1.0) -> str:
        """One line of the table; the last two columns are the quartiles of the added cost."""
        differences = [(h - n) * scale for n, h in zip(self.native, self.hooked, strict=True)]
        low, middle, high = statistics.quantiles(differences, n=4)
        native, hooked = (statistics.median(side) * scale for side in (self.native, self.hooked))
        return f"{name:<44}{unit:>3} {native:>10.3f}{hooked:>10.3f}{middle:>10.3f}{low:>10.3f}{high:>10.3f}"


@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """All results, by measurement."""

    pairs: dict[tuple[str, int], Compared]
    eight: Compared
    launches: dict[str, Compared]
    starts: dict[int, Compared]
    outcome: Outcome | None
    """None on a GPU, which has no book."""
    gpu: GpuNode | None

    @property
    def launch(self) -> str:
        """The launching function with the higher added cost."""
        return max(self.launches, key=lambda name: self.launches[name].added)

    def show(self) -> None:
        """Print a table for people."""
        print(f"{'medians of turns, and quartiles of added':<48}", end="")
        print(*(f"{title:>10}" for title in ("native", "hooked", "added", "p25", "p75")), sep="")
        for (name, size), compared in self.pairs.items():
            print(compared.row(f"{name} and free, {size} bytes", "us", 0.001))
        print(self.eight.row(f"{REPORTED[0]}, {PROCESSES} on one line, {CORES} at once", "us", 0.001))
        for name, compared in self.launches.items():
            print(compared.row(name, "ns"))
        for live, compared in self.starts.items():
            print(compared.row(f"start to first context beside {live} live", "ms"))
        print(f"the launch reported is {self.launch}; the pair, {REPORTED[0]} of {REPORTED[1]} bytes")
        if self.outcome:
            killed, tallies = self.outcome.kills, self.outcome.tallies
            print(f"hammer: {HAMMER_S:.0f} s, {killed} killed; granted and refused by who lived to the end:")
            print("  ".join(f"{path} {yes}/{no}" for path, (yes, no) in tallies.items() if yes + no))

    def result(self) -> dict[str, float | str]:
        """The last output line."""
        return {
            "pair_added_us_p50_1proc": round(self.pairs[REPORTED].added / 1000, 3),
            "pair_added_us_p50_8proc": round(self.eight.added / 1000, 3),
            "launch_added_ns": round(self.launches[self.launch].added, 1),
            "startup_ms_p50": round(self.starts[0].added, 2),
            **{
                f"startup_ms_p50_{live}live": round(compared.added, 2)
                for live, compared in self.starts.items()
                if live
            },
            **self._where(),
            "machine": f"{platform.machine()} {platform.system()} {platform.release()}",
            "cores": CORES,
            "load": round(os.getloadavg()[0], 2),
            "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        }

    def _where(self) -> dict[str, float | str]:
        if self.gpu:
            return {"gpu": self.gpu.name, "driver": self.gpu.driver}
        assert self.outcome is not None
        return {
            "hammer_kills": self.outcome.kills,
            "hammer_over_line_bytes": self.outcome.over_line_bytes,
            "hammer_left_bytes": sum(map(abs, self.outcome.left_bytes.values())),
        }
