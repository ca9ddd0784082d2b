"""What a node offers to Kubernetes, from the GPUs that the monitor reads (design: resources a pod may ask for)."""

from collections.abc import Iterable, Mapping

from plimsoll.contract import GPU_COUNT, GPU_MEMORY, GPU_SHARE
from plimsoll.events import Gpu
from plimsoll.part.errors import InputError
from plimsoll.quantity import parse_whole


def capacity(gpus: Iterable[Gpu], overcommit_ratio: float, sharers_per_gpu: int) -> dict[str, str]:
    """The node's totals as Kubernetes quantities, all whole numbers.

    Args:
        gpus: all readable GPUs; none gives zeros, so that a node that lost its GPUs attracts no pod.
        overcommit_ratio: promised bytes per usable byte; 1 promises what is there.
        sharers_per_gpu: how many containers may share one GPU.
    """
    usable = [gpu.usable_bytes for gpu in gpus]
    return {
        GPU_MEMORY: str(int(sum(usable) * overcommit_ratio)),
        GPU_SHARE: str(100 * len(usable)),
        GPU_COUNT: str(sharers_per_gpu * len(usable)),
    }


def missing(offered: Mapping[str, str], shown: Mapping[str, str | int | float]) -> dict[str, str]:
    """What of `offered` a node does not show, or shows with another amount.

    Amounts are compared, not texts: the API server writes 20000000000 as `20G`.
    """
    return {name: value for name, value in offered.items() if _amount(shown.get(name)) != int(value)}


def _amount(quantity: str | float | None) -> int | None:
    if quantity is None:
        return None
    try:
        return parse_whole(quantity, "status.capacity", "units")
    except InputError:
        return None  # somebody wrote what cannot be ours: it differs, and is patched over
