"""What each GPU has for containers: by the last measurement, and for certain.

One measurement that shows less proves little. A process that ends is off NVML's list before all its memory is back,
and one that the broker has just buried, or not heard of yet, counts as nobody's. So memory is granted by the last
measurement, but a request is refused for good only by what has lasted.
"""

from typing import Final

from plimsoll.ids import GpuUuid

LASTING_S: Final = 15.0
"""How long a GPU must have had less for the rest to count as gone: three measurements of a node at rest."""


class Capacities:
    """The node's.

    Attributes:
        latest: bytes by GPU, as last measured; a GPU that never was is missing.
        lasting: the same, but less only after it was less for `LASTING_S`.
    """

    def __init__(self) -> None:
        self.latest: dict[GpuUuid, int] = {}
        self.lasting: dict[GpuUuid, int] = {}
        self._most: dict[GpuUuid, int] = {}  # since it began to be less than the lasting
        self._since_s: dict[GpuUuid, float] = {}

    def measure(self, gpu: GpuUuid, usable_bytes: int) -> None:
        """So much it has now."""
        self.latest[gpu] = usable_bytes
        if usable_bytes < self.lasting.get(gpu, 0):
            self._most[gpu] = max(usable_bytes, self._most.get(gpu, 0))
        else:
            self.lasting[gpu] = usable_bytes
            self._most.pop(gpu, None)
            self._since_s.pop(gpu, None)

    def pass_time(self, now_s: float) -> None:
        """It is so late; what was less for long enough has lasted."""
        for gpu, most_bytes in list(self._most.items()):
            if now_s - self._since_s.setdefault(gpu, now_s) >= LASTING_S:
                self.lasting[gpu] = most_bytes
                del self._most[gpu], self._since_s[gpu]
                self.measure(gpu, self.latest[gpu])
