"""The limits of pods and containers in the driver, and the lines that the library gets."""

import pytest

from hook.broker.core.enforcement import (
    UNKNOWN_CONTEXT_BYTES,
    EnforcementName,
    container_limits,
    on_page,
    pod_limits,
)
from hook.broker.core.registration import MAX_LINE_BYTES
from plimsoll.broker.wire import RUN_NAMESPACE, ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.lifespan import MAIN, Lifespan
from plimsoll.quantity import GIB, MIB

A, B = GpuUuid("GPU-A"), GpuUuid("GPU-B")
CONTEXT = 300 * MIB


def cost(gpu: GpuUuid) -> int:
    """The cost of a context, which is known on the first GPU alone."""
    return CONTEXT if gpu == A else 0


def container(
    name: str, *gpus: GpuUuid, gib: int = 1, whole: bool = False, lifespan: Lifespan = MAIN
) -> ContainerLines:
    """A container with the same line on each of its GPUs."""
    lines = tuple(Line(gpu=gpu, line_bytes=gib * GIB, share_pct=30) for gpu in gpus)
    return ContainerLines(name=ContainerName(name), lines=lines, whole=whole, lifespan=lifespan)


def pod(*containers: ContainerLines, namespace: str = "team") -> Register:
    """A pod of these containers."""
    return Register(pod=PodUid("p"), namespace=namespace, name="p", containers=containers)


def test_a_pod_may_hold_what_its_containers_declare_together() -> None:
    """Each container adds its line and a margin: the cost of a context, as measured, or an estimate before that."""
    both = pod(container("a", A, gib=1), container("b", A, B, gib=2))
    assert pod_limits(both, cost) == {A: 3 * GIB + 2 * CONTEXT, B: 2 * GIB + UNKNOWN_CONTEXT_BYTES}
    assert container_limits(both.containers[0], cost) == {A: GIB + CONTEXT}


def test_containers_that_never_meet_count_as_the_largest() -> None:
    """An init container ends before the others begin, so the pod never holds what both declare."""
    first = container("first", A, gib=5, lifespan=Lifespan(0))
    assert pod_limits(pod(first, container("main", A, gib=2)), cost) == {A: 5 * GIB + CONTEXT}


def test_a_gpu_that_a_container_owns_has_no_limit() -> None:
    """The pod's other GPUs keep theirs."""
    limits = pod_limits(pod(container("owner", A, whole=True), container("other", B)), cost)
    assert limits == {A: None, B: GIB + UNKNOWN_CONTEXT_BYTES}


@pytest.mark.parametrize(
    ("enforcement", "namespace", "line"),
    [
        ("both", "team", (GIB, False)),
        ("preload", "team", (GIB, False)),
        ("driver", "team", (MAX_LINE_BYTES, False)),
        ("driver", RUN_NAMESPACE, (GIB, False)),
        ("none", "team", (GIB, True)),
        ("none", RUN_NAMESPACE, (GIB, True)),
    ],
)
def test_the_library_holds_what_nobody_else_does(
    enforcement: EnforcementName, namespace: str, line: tuple[int, bool]
) -> None:
    """Under `driver` the library holds no memory of pods, but that of `plimsoll run`; under `none`, nothing."""
    one = container("main", A)
    shown = on_page(pod(one, namespace=namespace), one, enforcement)
    assert (shown.lines[0].line_bytes, shown.whole) == line
    assert shown.lines[0].share_pct == 30
