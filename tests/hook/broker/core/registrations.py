"""Pods of one container on both GPUs, as the broker registers them."""

from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid, PodUid

PODS = (PodUid("pod-a"), PodUid("pod-b"))
GPUS = (GpuUuid("GPU-a"), GpuUuid("GPU-b"))
MAIN = ContainerName("main")


def pod(uid: PodUid, line_bytes: int = 1) -> Register:
    """A pod of one container on both GPUs."""
    lines = tuple(Line(gpu=gpu, line_bytes=line_bytes) for gpu in GPUS)
    container = ContainerLines(name=MAIN, lines=lines)
    return Register(pod=uid, namespace="n", name="p", containers=(container,))
