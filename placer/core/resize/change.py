"""A change of a running container's line, share or share limit: from the request to the pod's new booking.

What always holds: a change moves no container; it is checked (see `placer.core.resize.room`) for the GPUs that the
container has. A request is one change, in force wholly or not at all. Lowering is always allowed, also below the
memory in use, because memory in use is never taken away. A whole GPU has nothing to change, and a best-effort
container has no line to change.
"""

from dataclasses import dataclass, replace
from typing import Final

from placer.core.booking import Booking, Grant, larger
from plimsoll.broker.wire import Line
from plimsoll.ids import ContainerName
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import parse_size, parse_whole

MEMORY: Final = "gpu-memory"
SHARE: Final = "gpu-share"
LIMIT: Final = "gpu-share-limit"
"""The fields that error messages name, as the command line names them."""


class NotNowError(PlimsollError):
    """The resize cannot be checked or carried out now; asking again later may work."""


@dataclass(frozen=True, slots=True)
class ResizeChange:
    """A pod's booking before and after one of its containers is resized.

    Attributes:
        container: the container that is resized.
        counted: the booking in the ledger. An earlier resize without a clear end may have left it larger than `old`.
        old: the booking in force.
        new: the booking that is asked for.
    """

    container: ContainerName
    counted: Booking
    old: Booking
    new: Booking

    @property
    def before(self) -> tuple[Line, ...]:
        """The container's line and shares in force, one for each GPU."""
        return tuple(map(_line, grants_of(self.old, self.container)))

    @property
    def after(self) -> tuple[Line, ...]:
        """The container's line and shares that are asked for, one for each GPU."""
        return tuple(map(_line, grants_of(self.new, self.container)))

    @property
    def larger(self) -> Booking:
        """The booking that counts while either may be in force: the larger of both on each GPU.

        So a raise takes its room before the change, and a lowering gives room back after it.
        """
        return larger(self.counted, self.new)


def change_of(counted: Booking, request: Resize, in_force: Booking | None = None) -> ResizeChange:
    """The change that a request makes to a pod's booking.

    Args:
        counted: the pod's booking in the ledger.
        request: the new values.
        in_force: the pod's booking by its annotations or registration, where the ledger may count more; None where
            `counted` is in force.

    Raises:
        InputError: there is no such container, or it cannot have these values; the message names field, value and
            remedy.
    """
    old = counted if in_force is None else in_force
    name = _container(old, request.container)
    grants = grants_of(old, name)
    _refuse_unchangeable(request, grants[0])
    given = _given(request, grants[0], len(grants))
    after = (_changed(grant, *given) if grant.container == name else grant for grant in old.grants)
    return ResizeChange(name, counted, old, replace(old, grants=tuple(after)))


def grants_of(booking: Booking, container: ContainerName) -> tuple[Grant, ...]:
    """The grants of one container, in the order of its GPUs."""
    return tuple(grant for grant in booking.grants if grant.container == container)


def asked_field(request: Resize) -> tuple[str, str | None]:
    """The first field that the request changes, as the command line names it, and its value."""
    asked = ((MEMORY, request.gpu_memory), (SHARE, request.gpu_share), (LIMIT, request.gpu_share_limit))
    return next(((field, value) for field, value in asked if value is not None), (MEMORY, None))


def _container(booking: Booking, wanted: ContainerName | None) -> ContainerName:
    names = list(dict.fromkeys(grant.container for grant in booking.grants))
    if wanted is not None:
        if wanted not in names:
            raise InputError("container", wanted, "has no GPU in this pod", f"name one of {', '.join(names)}")
        return wanted
    # Init containers have ended when nearly all resizes come, so they are resized by name.
    last = list(dict.fromkeys(grant.container for grant in booking.grants if grant.lifespan.init is None))
    if len(last or names) > 1:
        raise InputError("container", None, "is not given", f"name one of {', '.join(names)}")
    return (last or names)[0]


def _refuse_unchangeable(request: Resize, grant: Grant) -> None:
    if request.asks_nothing:
        raise InputError(
            MEMORY, None, "is not given, nor a share or limit", f"give {MEMORY}, {SHARE} or {LIMIT}"
        )
    if grant.whole:
        problem = "has whole GPUs: all their memory and time are its own, and nothing there is limited"
        remedy = "to share them, recreate the pod with a declared size or share"
        raise InputError("container", grant.container, problem, remedy)
    if grant.memory_bytes is None and request.gpu_memory is not None:
        problem = f"is best-effort and declares no memory: its line is what promises leave free ({MEMORY} was asked)"
        remedy = f"change its {SHARE} or {LIMIT} alone, or recreate the pod with a declared size"
        raise InputError("container", grant.container, problem, remedy)


def _given(request: Resize, old: Grant, gpus: int) -> tuple[int | None, int, int]:
    """The asked line, share and limit on each GPU; the line is None where none is asked."""
    line_bytes = None
    if request.gpu_memory is not None:
        size = parse_size(request.gpu_memory, MEMORY, gpus)
        line_bytes = _per_gpu(MEMORY, request.gpu_memory, size, gpus)
        if line_bytes == 0:
            remedy = "give 1Mi or more, or delete the pod"
            raise InputError(MEMORY, request.gpu_memory, "leaves nothing", remedy)
    share_pct, limit_pct = old.share_pct, old.limit_pct
    if request.gpu_share is not None:
        share = parse_whole(request.gpu_share, SHARE, "percent")
        share_pct = _per_gpu(SHARE, request.gpu_share, share, gpus)
        if share_pct > 100:
            problem, remedy = f"is more than {gpus} GPU(s) have", f"give at most {100 * gpus}"
            raise InputError(SHARE, request.gpu_share, problem, remedy)
    if request.gpu_share_limit is not None:
        limit_pct = parse_whole(request.gpu_share_limit, LIMIT, "percent")
        if not 1 <= limit_pct <= 100:
            raise InputError(LIMIT, request.gpu_share_limit, "is no percentage of a GPU", "give 1 to 100")
    _refuse_share_above_limit(request, share_pct, limit_pct, gpus)
    return line_bytes, share_pct, limit_pct


def _refuse_share_above_limit(request: Resize, share_pct: int, limit_pct: int, gpus: int) -> None:
    if share_pct <= limit_pct:
        return
    if request.gpu_share is None:
        problem = f"is below the share of {share_pct} that is promised on each GPU"
        remedy = f"give {share_pct} to 100, or lower {SHARE} with it"
        raise InputError(LIMIT, request.gpu_share_limit, problem, remedy)
    problem = f"is {share_pct} on each GPU, above the limit of {limit_pct}"
    remedy = f"give at most {limit_pct * gpus}, or raise {LIMIT} with it"
    raise InputError(SHARE, request.gpu_share, problem, remedy)


def _per_gpu(field: str, text: str, total: int, gpus: int) -> int:
    if total % gpus:
        raise InputError(field, text, f"does not divide evenly by {gpus} GPUs", f"give a multiple of {gpus}")
    return total // gpus


def _changed(grant: Grant, line_bytes: int | None, share_pct: int, limit_pct: int) -> Grant:
    grant = replace(grant, share_pct=share_pct, limit_pct=limit_pct)
    return grant if line_bytes is None else replace(grant, memory_bytes=line_bytes, line_bytes=line_bytes)


def _line(grant: Grant) -> Line:
    return Line(
        gpu=grant.gpu, line_bytes=grant.line_bytes, share_pct=grant.share_pct, limit_pct=grant.limit_pct
    )
