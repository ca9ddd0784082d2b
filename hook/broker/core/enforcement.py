"""The means that hold a container to its line of memory: the preload library, the driver, both, or none. Pure.

The driver counts all memory of a control group. The library learns of some of it by measurement only: the cost of a
first context, code, the driver's own tables. So the driver's line lies above the declared line by a margin for each
container: the cost of a context. A program with the library meets the library's line first, and any other program the
driver's.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from msgspec.structs import replace

from hook.broker.core.registration import MAX_LINE_BYTES
from plimsoll.broker.wire import RUN_NAMESPACE, ContainerLines, Register
from plimsoll.ids import GpuUuid
from plimsoll.lifespan import Lifespan, peak
from plimsoll.quantity import MIB

EnforcementName = Literal["both", "preload", "driver", "none"]

BY_LIBRARY: Final = frozenset({"both", "preload"})
BY_DRIVER: Final = frozenset({"both", "driver"})

UNKNOWN_CONTEXT_BYTES: Final = 512 * MIB
"""The margin while the cost of a context is not measured. Contexts of current cards cost 200 to 500 MiB."""


def on_page(pod: Register, container: ContainerLines, enforcement: EnforcementName) -> ContainerLines:
    """A container's lines as its library gets them.

    Where the library holds no line, it goes on counting and reporting. Under `driver` it still holds shares; under
    `none` it treats the GPUs as the container's own. A pod that the driver cannot know is left to the library.
    """
    if enforcement == "none":
        return replace(container, whole=True)
    if enforcement in BY_LIBRARY or not has_cgroup(pod):
        return container
    return replace(
        container, lines=tuple(replace(line, line_bytes=MAX_LINE_BYTES) for line in container.lines)
    )


def pod_limits(pod: Register, context_bytes: Callable[[GpuUuid], int]) -> dict[GpuUuid, int | None]:
    """The most bytes that the driver gives a whole pod, per GPU; None for no limit.

    Containers that never run at the same time count as the largest of them. A GPU that a container owns whole has no
    limit.

    Args:
        pod: its registration.
        context_bytes: the cost of a context on a GPU; 0 while it is not known.
    """
    return _limits(pod.containers, context_bytes)


def container_limits(
    container: ContainerLines, context_bytes: Callable[[GpuUuid], int]
) -> dict[GpuUuid, int | None]:
    """The same for a single container."""
    return _limits((container,), context_bytes)


def without_limits(limits: Mapping[GpuUuid, int | None]) -> dict[GpuUuid, int | None]:
    """The same GPUs without a limit."""
    return dict.fromkeys(limits)


def has_cgroup(pod: Register) -> bool:
    """Whether the kubelet makes a control group for the pod: `plimsoll run` registers programs of a login session."""
    return pod.namespace != RUN_NAMESPACE


def _limits(
    containers: Iterable[ContainerLines], context_bytes: Callable[[GpuUuid], int]
) -> dict[GpuUuid, int | None]:
    needs: dict[GpuUuid, list[tuple[Lifespan, int]]] = {}
    owned: set[GpuUuid] = set()
    for container in containers:
        for line in container.lines:
            margin_bytes = context_bytes(line.gpu) or UNKNOWN_CONTEXT_BYTES
            needs.setdefault(line.gpu, []).append((container.lifespan, line.line_bytes + margin_bytes))
            if container.whole:
                owned.add(line.gpu)
    return {gpu: None if gpu in owned else peak(found) for gpu, found in needs.items()}
