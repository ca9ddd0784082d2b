"""How long a container used its GPUs, from what its processes say of themselves.

A process says how long all its ended bursts were, and since when one is under way. The one under way is taken to go
on until it is told otherwise; then what was taken too much is given back. So the sum is right in the end, and nearly
right at every moment.

Slots are written by the programs themselves. What they say is believed only as far as it can be: a container never
used more than the time that passed, and ended bursts never become shorter.
"""

from dataclasses import dataclass, field

from hook.broker.core.facts import ProcessKey
from hook.broker.core.shares.turns import Use


@dataclass(eq=False, slots=True)
class Bursts:
    """What one process said.

    Attributes:
        busy_ns: its ended bursts.
        since_ns: when the one under way began; 0 for none.
        taken_ns: what was taken to be its use, the burst under way included.
        frozen_since_ns: the burst that began then is not believed to go on; 0 for none.
    """

    busy_ns: int = 0
    since_ns: int = 0
    taken_ns: int = 0
    frozen_since_ns: int = 0

    def read(self, use: Use) -> None:
        """It says this now."""
        self.busy_ns = max(self.busy_ns, use.busy_ns)
        self.since_ns = use.busy_since_ns

    @property
    def is_frozen(self) -> bool:
        """Whether it is not known how long the burst under way went on."""
        return self.since_ns != 0 and self.since_ns == self.frozen_since_ns

    def total_ns(self, now_ns: int) -> int:
        """What it used since it began."""
        if not self.since_ns:
            return self.busy_ns
        if self.is_frozen:
            return max(self.busy_ns, self.taken_ns)
        return self.busy_ns + max(0, now_ns - self.since_ns)


@dataclass(eq=False, slots=True)
class Meter:
    """What one container's processes used together.

    Attributes:
        used_ns: since it joined.
    """

    used_ns: int = 0
    _mark_ns: int = 0
    _used_at_mark_ns: int = 0
    _beside_ns: int = 0
    _bursts: dict[ProcessKey, Bursts] = field(default_factory=dict)

    def mark(self, now_ns: int) -> None:
        """All processes were asked now. What they used is known up to now, but for a burst that is frozen."""
        if not any(bursts.is_frozen for bursts in self._bursts.values()):
            self._mark_ns = now_ns
            self._used_at_mark_ns = self.used_ns

    def unknown_ns(self, now_ns: int) -> int:
        """The most that may have been used since all were asked, and is not in `used_ns`."""
        return now_ns - self._mark_ns - (self.used_ns - self._used_at_mark_ns)

    def read(self, process: ProcessKey, use: Use) -> None:
        """A process said this; `settle` takes it into account."""
        self._bursts.setdefault(process, Bursts()).read(use)

    def begin(self, process: ProcessKey, use: Use, now_ns: int) -> None:
        """A process is known from now on; what it used before is somebody else's business."""
        bursts = Bursts()
        bursts.read(use)
        bursts.taken_ns = bursts.total_ns(now_ns)
        self._bursts[process] = bursts

    def is_busy(self, process: ProcessKey) -> bool:
        """Whether a burst of it is under way, as it last said."""
        return self._bursts[process].since_ns != 0

    def freeze(self, process: ProcessKey) -> None:
        """Its burst under way is not believed to go on any more; what it says of it in the end counts."""
        self._bursts[process].frozen_since_ns = self._bursts[process].since_ns

    def forget(self, process: ProcessKey) -> None:
        """It is dead: what it used remains."""
        self._bursts.pop(process, None)

    def settle(self, now_ns: int) -> int:
        """What was used since this was last asked; below 0 where too much was taken."""
        said_ns = 0
        for bursts in self._bursts.values():
            total_ns = bursts.total_ns(now_ns)
            said_ns += total_ns - bursts.taken_ns
            bursts.taken_ns = total_ns
        used_ns = self._count(said_ns, self._used_at_mark_ns + now_ns - self._mark_ns - self.used_ns)
        self.used_ns += used_ns
        if not any(bursts.since_ns for bursts in self._bursts.values()):
            self._beside_ns = 0
        return used_ns

    def _count(self, said_ns: int, room_ns: int) -> int:
        """Of what several say they used at once, only the time counts; and what does not count is not given back."""
        if said_ns < 0:
            back_ns = min(-said_ns, self._beside_ns)
            self._beside_ns -= back_ns
            said_ns += back_ns
        used_ns = min(said_ns, room_ns)
        self._beside_ns += said_ns - used_ns
        return used_ns

    def first_since_ns(self, process: ProcessKey, busy_ns: int) -> int:
        """When its burst under way began, if none ended since it had used `busy_ns` and it lives; else 0."""
        bursts = self._bursts.get(process)
        return bursts.since_ns if bursts and bursts.busy_ns == busy_ns else 0

    def busy_ns(self, process: ProcessKey) -> int:
        """Its ended bursts."""
        return self._bursts[process].busy_ns
