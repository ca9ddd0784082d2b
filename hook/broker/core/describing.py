"""The description that the control socket gives: the registered containers and what they hold."""

from collections.abc import Callable, Iterable, Mapping

from hook.broker.core.ids import ContainerKey, SlotUse
from hook.broker.core.processes.lives import Lives
from hook.broker.core.registration.record import PodRecord
from hook.broker.core.shares.events import GateState, ShareUse
from plimsoll.broker.wire import ContainerUse, Description, ProcessUse, ShareUsed

ShareOf = Callable[[ContainerKey], ShareUse | None]


def describe(
    records: Iterable[PodRecord],
    lives: Lives,
    slots: Mapping[ContainerKey, tuple[SlotUse, ...]],
    share_of: ShareOf,
    unheld_pids: Callable[[ContainerKey], tuple[int, ...]],
) -> Description:
    """Every registered container, with the memory of its announced processes and its compute time.

    Args:
        records: every registered pod.
        lives: the announced processes.
        slots: the claimed slots by container; a missing container holds nothing.
        share_of: the compute time of a container; None for a container that is not laid out yet.
        unheld_pids: the processes of a container that use a GPU without the library.
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
                processes=_processes(lives, key, len(lines.lines), slots.get(key, ())),
                share=_share(share_of(key)),
                unheld_pids=unheld_pids(key),
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
    lives: Lives, container: ContainerKey, gpu_count: int, slots: tuple[SlotUse, ...]
) -> tuple[ProcessUse, ...]:
    by_owner = {slot.owner: slot for slot in slots}
    nothing = SlotUse(0, 0, (0,) * gpu_count, 0)
    held = [(key, by_owner.get(owner, nothing)) for key, owner in sorted(lives.of(container).items())]
    return tuple(
        ProcessUse(pid=key.pid, used_bytes=slot.used_bytes, denied_count=slot.denied_count)
        for key, slot in held
    )
