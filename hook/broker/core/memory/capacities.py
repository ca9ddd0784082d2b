"""The bytes that each GPU has for containers: by the last measurement, and by what has lasted.

A single measurement that shows less proves little. NVML drops a process that ends from its list before all its memory
is back. A process whose death the broker just saw, or whose hello is still under way, belongs to no container. So
memory is granted by the last measurement, but a request is refused for good only by bytes that have lasted.
"""

from typing import Final

from plimsoll.ids import GpuUuid

LASTING_S: Final = 15.0
"""Seconds for which a GPU must have had less until the difference counts as gone: three measurements of a node at
rest."""


class Capacities:
    """The capacities of a node's GPUs.

    Attributes:
        latest: bytes by GPU, as last measured; a GPU that was never measured is missing.
        lasting: the same, but a lower number counts only after `LASTING_S`.
    """

    def __init__(self) -> None:
        self.latest: dict[GpuUuid, int] = {}
        self.lasting: dict[GpuUuid, int] = {}
        self._most: dict[GpuUuid, int] = {}  # the most since it fell below the lasting bytes
        self._since_s: dict[GpuUuid, float] = {}

    def measure(self, gpu: GpuUuid, usable_bytes: int) -> None:
        """Take in a measurement of one GPU."""
        self.latest[gpu] = usable_bytes
        if usable_bytes < self.lasting.get(gpu, 0):
            self._most[gpu] = max(usable_bytes, self._most.get(gpu, 0))
        else:
            self.lasting[gpu] = usable_bytes
            self._most.pop(gpu, None)
            self._since_s.pop(gpu, None)

    def pass_time(self, now_s: float) -> None:
        """Let lower numbers count that have lasted for `LASTING_S` by `now_s`, in seconds."""
        for gpu, most_bytes in list(self._most.items()):
            if now_s - self._since_s.setdefault(gpu, now_s) >= LASTING_S:
                self.lasting[gpu] = most_bytes
                del self._most[gpu], self._since_s[gpu]
                self.measure(gpu, self.latest[gpu])
