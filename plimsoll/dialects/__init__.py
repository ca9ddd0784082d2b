"""The requests of other GPU schedulers, turned into Plimsoll's own: one file each, all with one interface.

The webhook translates pods of people who come from elsewhere, and `plimsoll convert` translates their manifests.
What always holds: a pod is either translated as a whole, with a line for people on each change, or refused by the
name of the field that has no counterpart; `foreign` knows the names that would be left over. A pod that mixes two
dialects, or a dialect with our own resources on one container, is refused. The given pod is never changed in place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from plimsoll.contract import SCHEDULER_NAME
from plimsoll.dialects.containers import Json as Json
from plimsoll.dialects.containers import without_defaults
from plimsoll.dialects.foreign import is_gpu_resource, refuse_foreign
from plimsoll.part.errors import InputError

DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Translation:
    """A pod in our terms.

    Attributes:
        pod: the pod; the given object where nothing was to be translated.
        changes: a line for people on each change; empty where nothing was to be translated.
    """

    pod: Json
    changes: tuple[str, ...] = ()


class Dialect(Protocol):
    """Another scheduler's way to ask for GPUs."""

    @property
    def name(self) -> str:
        """The scheduler's name, for people."""

    @property
    def scheduler(self) -> str | None:
        """The name by which pods ask for the scheduler; None where it is kube-scheduler's."""

    def asks(self, pod: Json) -> str | None:
        """The first field by which the pod asks in this dialect, or None for a pod that does not."""

    def translate(self, pod: Json) -> Translation:
        """The pod in our terms.

        Raises:
            InputError: a field is malformed, or has no counterpart.
        """


def translated(pod: Json, dialects: Sequence[Dialect], schedulers: Sequence[str] = ()) -> Translation:
    """A pod in our terms, to be placed by our scheduler.

    Args:
        pod: a pod, or a pod template: a mapping with `spec.containers`.
        dialects: those to understand.
        schedulers: schedulers beside our own that keep their pods, because the placer is their extender.

    Raises:
        InputError: the pod cannot be translated.
    """
    pod, changes = without_defaults(pod, is_gpu_resource)
    asked = [(dialect, field) for dialect in dialects if (field := dialect.asks(pod)) is not None]
    spec = pod["spec"]
    is_named = any(one.scheduler and spec.get("schedulerName") == one.scheduler for one in dialects)
    if not asked and not is_named:
        return Translation(pod, changes)
    if len(asked) > 1:
        problem = (
            f"asks for GPUs in the way of {asked[1][0].name}, beside {asked[0][1]} of {asked[0][0].name}"
        )
        raise InputError(asked[1][1], asked[1][0].name, problem, "ask in one way")
    # A pod that asks for no GPU waits for a scheduler that is gone all the same.
    found = asked[0][0].translate(pod) if asked else Translation(pod)
    refuse_foreign(found.pod)
    spec = found.pod["spec"]
    scheduler = spec.get("schedulerName") or DEFAULT_SCHEDULER
    changes = (*changes, *found.changes)
    if scheduler == SCHEDULER_NAME or scheduler in schedulers:
        return Translation(found.pod, changes)
    change = f"spec.schedulerName: {scheduler} became {SCHEDULER_NAME}"
    pod = {**found.pod, "spec": {**spec, "schedulerName": SCHEDULER_NAME}}
    return Translation(pod, (*changes, change))
