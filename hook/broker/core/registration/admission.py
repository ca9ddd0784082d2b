"""Checks the shares that a registration asks for: all shares on a GPU together never exceed 100.

Where containers of a pod never run at the same time, such as an init container and the containers after it, the
larger share counts (`plimsoll.lifespan`). Containers that own whole GPUs do not count. Unregistered pods do not count
either, though their last processes may still run. A registration that raises no share is always accepted, because
pods are registered again after a restart.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from hook.broker.core.registration.record import PodRecord
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.lifespan import Lifespan, beside, peak
from plimsoll.part.errors import InputError

WHOLE_PCT: Final = 100


def check_shares(request: Register, records: Iterable[PodRecord]) -> None:
    """Refuse a registration whose shares would promise more than 100 % of a GPU.

    Args:
        request: a registration that passed `check`.
        records: the records of all pods, the earlier record of the same pod among them.

    Raises:
        InputError: names the share that is too much, and what is left.
    """
    standing = [record.pod for record in records if not record.leaving]
    others = [pod for pod in standing if pod.pod != request.pod]
    before = [pod for pod in standing if pod.pod == request.pod]
    for field, container, line in _lines(request):
        gpu, asked_pct = line.gpu, line.share_pct
        others_pct = _sum_pct(others, gpu)
        rest = (one for one in request.containers if one is not container)
        own_pct = asked_pct + beside(container.lifespan, _shares(rest, gpu))
        surplus_pct = own_pct - max(WHOLE_PCT - others_pct, _sum_pct(before, gpu))
        if asked_pct and surplus_pct > 0:
            problem = f"brings the shares promised of {gpu} to {own_pct + others_pct}"
            raise InputError(field, asked_pct, problem, _remedy(asked_pct - surplus_pct, gpu, others))


def promised_pct(containers: Iterable[ContainerLines], gpu: GpuUuid) -> int:
    """The most of a GPU's time that these containers of one pod were promised together, in percent."""
    return peak(_shares(containers, gpu))


def _shares(containers: Iterable[ContainerLines], gpu: GpuUuid) -> Iterator[tuple[Lifespan, int]]:
    sharing = (one for one in containers if not one.whole)
    return ((one.lifespan, line.share_pct) for one in sharing for line in one.lines if line.gpu == gpu)


def _lines(request: Register) -> Iterator[tuple[str, ContainerLines, Line]]:
    for place, container in enumerate(request.containers):
        for number, line in enumerate(container.lines):
            if not container.whole:
                yield f"containers[{place}].lines[{number}].share_pct", container, line


def _sum_pct(pods: Iterable[Register], gpu: GpuUuid) -> int:
    return sum(promised_pct(pod.containers, gpu) for pod in pods)


def _remedy(left_pct: int, gpu: GpuUuid, others: Iterable[Register]) -> str:
    holders: dict[PodUid, int] = {pod.pod: promised_pct(pod.containers, gpu) for pod in others}
    named = ", ".join(f"{pod} ({share_pct})" for pod, share_pct in sorted(holders.items()) if share_pct)
    advice = f"give at most {left_pct}" if left_pct > 0 else "take another GPU"
    return f"{advice}, or unregister one of {named}" if named else f"{advice}, so that they come to 100"
