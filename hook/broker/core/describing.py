"""The description that the control socket gives: the registered containers and what they hold."""

from collections.abc import Callable, Iterable, Mapping

from hook.broker.core.audit.audit import Audit
from hook.broker.core.ids import ContainerKey, SlotUse
from hook.broker.core.lives import Lives
from hook.broker.core.registration import PodRecord
from hook.broker.core.shares.events import GateState, ShareUse
from plimsoll.broker.wire import ContainerLines, ContainerUse, Description, ProcessUse, ShareUsed
from plimsoll.ids import ProcessKey

ShareOf = Callable[[ContainerKey], ShareUse | None]


def describe(
    records: Iterable[PodRecord],
    lives: Lives,
    slots: Mapping[ContainerKey, tuple[SlotUse, ...]],
    share_of: ShareOf,
    audit: Audit,
) -> Description:
    """Every registered container, with the memory of its announced processes and its compute time.

    Args:
        records: every registered pod.
        lives: the announced processes.
        slots: the claimed slots by container; a missing container holds nothing.
        share_of: the compute time of a container; None for a container that is not laid out yet.
        audit: the results of measurements so far.
    """
    uses = []
    for record in records:
        for lines in record.pod.containers:
            key = ContainerKey(record.pod.pod, lines.name)
            use = ContainerUse(
                pod=record.pod.pod,
                namespace=record.pod.namespace,
                pod_name=record.pod.name,
                container=lines,
                processes=_processes(lives, key, lines, slots.get(key, ()), audit),
                share=_share(share_of(key)),
                unheld_pids=audit.unheld_pids(key),
                gpu_name=record.pod.gpu_name,
            )
            uses.append(use)
    return Description(containers=tuple(uses))


def _share(use: ShareUse | None) -> ShareUsed | None:
    """None for a container that owns its GPUs, or is not laid out yet."""
    if use is None or use.terms.whole:
        return None
    used_pct = None if use.state is GateState.OPEN else use.used_pct
    return ShareUsed(gate=use.state.name.lower(), used_pct=used_pct, waited_s=use.waited_s)


def _processes(
    lives: Lives,
    container: ContainerKey,
    lines: ContainerLines,
    slots: tuple[SlotUse, ...],
    audit: Audit,
) -> tuple[ProcessUse, ...]:
    by_owner = {slot.owner: slot for slot in slots}
    nothing = SlotUse(0, 0, (0,) * len(lines.lines), 0)
    held = [(key, by_owner.get(owner, nothing)) for key, owner in sorted(lives.of(container).items())]
    return tuple(
        _process(key, slot, tuple(audit.of_process(key, line.gpu)[1] for line in lines.lines))
        for key, slot in held
    )


def _process(key: ProcessKey, slot: SlotUse, excess_bytes: tuple[int, ...]) -> ProcessUse:
    used_bytes = tuple(map(sum, zip(slot.used_bytes, excess_bytes, strict=True)))
    return ProcessUse(
        pid=key.pid, used_bytes=used_bytes, excess_bytes=excess_bytes, denied_count=slot.denied_count
    )
