"""Holds the processes' own counts against what NVML shows: the words can lie or miss something, the driver does not.

What always holds:

* What a container holds past its words (`excess_bytes`) counts against its line; it goes when its process goes.
* A measurement counts only for a process that stood in the same slots at the one before, and whose words did not
  change between the moment before NVML was asked and the reading of the words. Else its excess stays as it was.
* What a context costs (`context_bytes`) only ever falls: the least that was seen, which nobody is wrongly charged.
* A finding is told once, and again only after it had ended; only what two measurements running show is one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hook.broker.core.announcer import NOBODY, Told
from hook.broker.core.audit.attribution import Audited, Held, Place, Seen, Standing, attributed
from hook.broker.core.audit.overheads import BLOCK_BYTES, Overhead
from hook.broker.core.ids import ContainerKey, ProcessKey
from plimsoll.broker.wire import Measured
from plimsoll.ids import GpuUuid

_UNHOOKED: Final = "a process of this container never came under its hook"
_UNHOOKED_SOMEWHERE: Final = "a process of one of this pod's containers never came under its hook"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to announce."""

    container: ContainerKey
    process: ProcessKey
    what: str
    told: Told


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a measurement came to.

    Attributes:
        stale: containers whose `limits` no longer show the numbers as they are.
        has_learned: a context's cost was learned, and is worth keeping.
    """

    findings: tuple[Finding, ...]
    stale: frozenset[ContainerKey]
    has_learned: bool


class Audit:
    """The node's, measurement by measurement."""

    def __init__(self, contexts: Mapping[GpuUuid, int]) -> None:
        """Begin.

        Args:
            contexts: what a context was known to cost, per GPU, by the last broker on this node.
        """
        self.contexts = dict(contexts)
        self.capacity: dict[GpuUuid, int] = {}
        """Per GPU: usable bytes less what processes that are nobody's here hold."""
        self._overheads: dict[Seen, tuple[Standing, Overhead]] = {}
        self._excess: dict[Place, int] = {}
        self._uncharged: set[Seen] = set()
        self._over: frozenset[Place] = frozenset()
        self._over_told: frozenset[Place] = frozenset()
        self._bare: frozenset[ProcessKey] = frozenset()
        self._bare_told: frozenset[ProcessKey] = frozenset()

    def excess_bytes(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """What a container holds past its words."""
        return self._excess.get((container, gpu), 0)

    def take(self, measured: Measured, containers: Sequence[Audited]) -> Verdict:
        """Take in a measurement.

        Args:
            measured: what NVML showed.
            containers: everything registered, with the words as read after that.
        """
        held = attributed(measured.processes, containers)
        self._weigh(held, measured.began_ns)
        learned = self._learn(held)
        stale = self._sum_up() | {c.key for c in containers if learned & c.line_bytes.keys()}
        self._measure_capacity(measured, held)
        findings = (*self._violated(held, containers), *self._unenforced(held))
        return Verdict(findings, frozenset(stale), bool(learned))

    def forget(self, process: ProcessKey) -> frozenset[ContainerKey]:
        """A process is gone, and what it held past its words with it; returns whose numbers changed."""
        self._overheads = {seen: each for seen, each in self._overheads.items() if seen[0] != process}
        return frozenset(self._sum_up())

    def _weigh(self, held: Iterable[Held], began_ns: int) -> None:
        """The next sample of each process that counts somewhere; one that is not listed any more has no overhead."""
        before, self._overheads = self._overheads, {}
        for each in held:
            standing, sample = each.standing, each.sample
            if standing is None or sample is None:
                continue
            known, overhead = before.get(each.seen, (None, Overhead()))
            if known is not None and known.place != standing.place:
                overhead = Overhead()
            if known == standing and each.changed_ns < began_ns:
                overhead.add(sample)
            self._overheads[each.seen] = (standing, overhead)

    def _learn(self, held: Sequence[Held]) -> frozenset[GpuUuid]:
        """What a context costs, at the least; returns the GPUs of which something new is known.

        A context made while its cost was not known is in nobody's word: there NVML shows it past the word. Later
        ones are in the words; still, no process with a context holds less than one.
        """
        with_context = {each.seen for each in held if each.sample and each.sample.has_context}
        unknown = {seen for seen in with_context if seen[1] not in self.contexts}
        self._uncharged = (self._uncharged & with_context) | unknown
        learned = set()
        for seen in with_context & self._overheads.keys():
            _, overhead = self._overheads[seen]
            cost = overhead.bare_bytes if seen in self._uncharged else overhead.whole_bytes
            if cost is not None and cost < self.contexts.get(seen[1], cost + 1):
                self.contexts[seen[1]] = cost
                learned.add(seen[1])
        return frozenset(learned)

    def _sum_up(self) -> set[ContainerKey]:
        """Each container's excess anew; returns whose changed."""
        before, now = self._excess, defaultdict[Place, int](int)
        for standing, overhead in self._overheads.values():
            now[standing.place] += overhead.excess_bytes
        self._excess = {place: excess for place, excess in now.items() if excess}
        places = before.keys() | self._excess.keys()
        return {place[0] for place in places if before.get(place) != self._excess.get(place)}

    def _measure_capacity(self, measured: Measured, held: Sequence[Held]) -> None:
        ours = defaultdict[GpuUuid, int](int)
        listed = defaultdict[GpuUuid, int](int)
        for each in held:
            listed[each.process.gpu] += each.process.used_bytes
            ours[each.process.gpu] += each.process.used_bytes if each.place else 0
        # What is used but on no list belongs to processes that are hidden from the monitor.
        self.capacity = {
            gpu.gpu: max(0, gpu.usable_bytes - max(gpu.used_bytes, listed[gpu.gpu]) + ours[gpu.gpu])
            for gpu in measured.gpus
        }

    def _violated(self, held: Sequence[Held], containers: Sequence[Audited]) -> list[Finding]:
        used = defaultdict[Place, int](int)
        for each in held:
            if each.place is not None:
                used[each.place] += each.process.used_bytes
        lines = {
            (container.key, gpu): line_bytes
            for container in containers
            if not container.lines.whole and not container.lines.best_effort
            for gpu, line_bytes in container.line_bytes.items()
        }
        over = frozenset(place for place, line in lines.items() if used[place] > line + BLOCK_BYTES)
        new = sorted((over & self._over) - self._over_told)
        self._over, self._over_told = over, (self._over_told & over) | frozenset(new)
        text = "NVML shows more than the line"
        return [
            Finding(
                container, NOBODY, "violated",
                Told(gpu=gpu, used_bytes=used[container, gpu], line_bytes=lines[container, gpu], text=text),
            )
            for container, gpu in new
        ]  # fmt: skip

    def _unenforced(self, held: Sequence[Held]) -> list[Finding]:
        bare = {each.key: each for each in held if each.hooked is None and each.owner is not None}
        new = sorted((bare.keys() & self._bare) - self._bare_told)
        self._bare, self._bare_told = frozenset(bare), (self._bare_told & bare.keys()) | frozenset(new)
        return [_unenforced(bare[key]) for key in new]


def _unenforced(held: Held) -> Finding:
    assert held.owner is not None
    told = Told(
        gpu=held.process.gpu,
        used_bytes=held.process.used_bytes,
        line_bytes=held.line_bytes,
        text=_UNHOOKED if held.container else _UNHOOKED_SOMEWHERE,
    )
    return Finding(held.owner, held.key, "unenforced", told)
