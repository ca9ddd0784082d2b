"""Holds a raise to the ResourceQuotas and LimitRanges of the pod's namespace, as a new pod would be held to them.

Kubernetes counts what a pod asks for when it comes, and never looks again. So a raise is compared with the sum of
what the placer really promises in the namespace: percentages, best effort, whole GPUs and earlier resizes included.
Pods that were admitted and wait for a node count by what they ask. What always holds: a scope that is not understood
counts every pod, so it may refuse too much and never too little. A lowering is never refused.

After a raise Kubernetes still admits pods by its own count, so placement looks at the same sum: in a namespace with a
pod that was raised, a pod that would pass a quota waits until there is room in it.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

import msgspec

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.requests import effective_requests
from placer.core.resize.change import MEMORY, SHARE, NotNowError, ResizeChange, grants_of
from placer.scheduler.clock import loop_now_s
from placer.scheduler.pods.index import PodIndex
from plimsoll.contract import GPU_MEMORY, GPU_SHARE
from plimsoll.ids import PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.kube.quota_models import (
    LimitRange,
    LimitRangeList,
    QuotaList,
    ResourceQuota,
    ScopeRequirement,
)
from plimsoll.kube.transport import ApiError, RefusedError, Transport
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import parse_exact, write_bytes

REREAD_S: Final = 15.0
"""The age at which the rules of a namespace are read again before they keep a pod waiting, or let it pass."""
REST_S: Final = 1.0
"""The pause between two readings: each change of a booking may end a pod's wait."""

REQUESTS: Final = "requests."
"""The API takes an extended resource into a quota under this prefix alone."""


class Amounts(NamedTuple):
    """Memory and share in total over containers and GPUs."""

    memory_bytes: int = 0
    share_pct: int = 0

    def plus(self, other: "Amounts") -> "Amounts":
        """The sum."""
        return Amounts(self.memory_bytes + other.memory_bytes, self.share_pct + other.share_pct)


@dataclass(frozen=True, slots=True)
class Rules:
    """The quotas and limit ranges of a namespace."""

    quotas: tuple[ResourceQuota, ...]
    ranges: tuple[LimitRange, ...]


class _Raised(NamedTuple):
    """A resource of which a pod is to get more.

    Attributes:
        field: the field of the request, as the command line names it; empty for a new pod, here and below.
        resource: its name in a manifest.
        asked: the text of the request.
        of: the resource's part of `Amounts`.
        shown: the amount as a quantity.
    """

    field: str
    resource: str
    asked: str
    of: Callable[[Amounts], int]
    shown: Callable[[int], str]


_RESOURCES: Final = (
    _Raised("", GPU_MEMORY, "", lambda one: one.memory_bytes, write_bytes),
    _Raised("", GPU_SHARE, "", lambda one: one.share_pct, str),
)


@dataclass(frozen=True, slots=True)
class NamespaceRules:
    """Reads the rules of a namespace, and checks raises and new pods against them.

    Attributes:
        transport: the connection to the API server.
        ledger: the bookings of all pods.
        pods: all pods that the watch shows.
    """

    transport: Transport
    ledger: Ledger
    pods: PodIndex
    # By namespace: its rules, and when they were read, on the loop's clock. Read where a pod was raised alone.
    _known: dict[str, tuple[float, Rules]] = field(default_factory=dict, init=False)
    _held: dict[str, set[PodUid]] = field(default_factory=dict, init=False)  # pods that wait for a quota
    _work: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def read(self, namespace: str) -> Rules:
        """The rules of a namespace as they are now.

        Raises:
            NotNowError: they cannot be read now.
            InputError: the placer may not read them.
        """
        path = f"/api/v1/namespaces/{namespace}"
        try:
            quotas, ranges = await asyncio.gather(
                self.transport.get(f"{path}/resourcequotas"), self.transport.get(f"{path}/limitranges")
            )
            return Rules(
                tuple(msgspec.json.decode(quotas, type=QuotaList).items),
                tuple(msgspec.json.decode(ranges, type=LimitRangeList).items),
            )
        except RefusedError as error:
            remedy = "give the placer's account the right to list resourcequotas and limitranges"
            raise InputError(
                "namespace", namespace, f"has quotas that are unknown ({error})", remedy
            ) from error
        except (ApiError, msgspec.MsgspecError) as error:
            raise NotNowError(f"the quotas of {namespace} cannot be read ({error}); ask again") from error

    def check(self, rules: Rules, pod: Pod, change: ResizeChange, request: Resize) -> None:
        """Refuse a raise that a new pod of this size would not be allowed either.

        Raises:
            InputError: a quota or a limit range forbids it; the message names it.
        """
        for raised in _raised(change, request):
            for one in rules.ranges:
                self._check_range(one, raised, change)
            for quota in rules.quotas:
                if f"{REQUESTS}{raised.resource}" in (quota.spec.hard or {}) and applies(quota, pod):
                    self._check_quota(quota, raised, pod, change)

    def _check_range(self, limits: LimitRange, raised: _Raised, change: ResizeChange) -> None:
        info = {
            "Container": raised.of(_of_container(change.new, change)),
            "Pod": raised.of(promised(change.new, self.ledger)),
        }
        for one in limits.spec.limits:
            most = (one.max or {}).get(raised.resource)
            if most is None or one.type not in info or info[one.type] <= parse_exact(most, raised.field):
                continue
            problem = (
                f"is {raised.shown(info[one.type])} for the {one.type.lower()}, and the LimitRange "
                f"{limits.metadata.name} allows {raised.resource}: {most}"
            )
            raise InputError(raised.field, raised.asked, problem, "give less, or have the LimitRange changed")

    def problem(self, pod: Pod) -> str | None:
        """Why a pod has to wait for a quota of its namespace, for people; None if it need not. Awaits nothing.

        Empty: the quotas are read now, which takes a moment.
        """
        namespace = pod.metadata.namespace
        if not any(self._is_raised(uid) for uid in self.pods.resized_in(namespace)):
            return None
        read_s, rules = self._known.get(namespace, (-math.inf, None))
        if rules is None or loop_now_s() - read_s > REREAD_S:
            self._hold(pod)
            self._work.set()
            return ""
        asked = _asked(pod)
        for one in _RESOURCES:
            for quota in rules.quotas:
                name, info = f"{REQUESTS}{one.resource}", one.of(asked)
                if not info or name not in (quota.spec.hard or {}) or not applies(quota, pod):
                    continue
                used = one.of(self._used_beside(pod, quota, with_waiting=False))
                is_past = False
                with contextlib.suppress(InputError):  # a bound that cannot be read holds no pod up
                    is_past = passes(quota, name, used + info)
                if is_past:
                    self._hold(pod)
                    return _waits_for(quota, name, one.shown(used), one.shown(info))
        return None

    def _hold(self, pod: Pod) -> None:
        self._held.setdefault(pod.metadata.namespace, set()).add(PodUid(pod.metadata.uid))

    async def run(self, again: Callable[[PodUid], None]) -> NoReturn:
        """Read the rules of namespaces where pods wait, and have these tried `again` after each change; endless."""
        self.ledger.on_change(lambda *_: self._work.set() if self._held else None)
        while True:
            heed_cancellation()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REREAD_S if self._held else None):
                    await self._work.wait()
            self._work.clear()
            for namespace in [
                one for one, (at_s, _) in self._known.items() if loop_now_s() - at_s > REREAD_S
            ]:
                del self._known[namespace]
            for namespace in tuple(self._held):
                rules = Rules((), ())  # an account that may not read quotas keeps to Kubernetes' own count
                with contextlib.suppress(NotNowError):
                    with contextlib.suppress(InputError):
                        rules = await self.read(namespace)
                    self._known[namespace] = loop_now_s(), rules
                for uid in self._held.pop(namespace):
                    again(uid)
            await asyncio.sleep(REST_S)

    def _is_raised(self, uid: PodUid) -> bool:
        """Whether a pod is promised more than Kubernetes counts of a resource that it does count."""
        pod, booking = self.pods.get(uid), self.ledger.booking(uid)
        if pod is None or booking is None:
            return False
        has, asked = promised(booking, self.ledger), _asked(pod)
        return any(has_one > asked_one > 0 for has_one, asked_one in zip(has, asked, strict=True))

    def _check_quota(self, quota: ResourceQuota, raised: _Raised, pod: Pod, change: ResizeChange) -> None:
        name = f"{REQUESTS}{raised.resource}"
        hard = (quota.spec.hard or {})[name]
        used = raised.of(self._used_beside(pod, quota, with_waiting=True))
        info = raised.of(promised(change.new, self.ledger))
        if not passes(quota, name, used + info):
            return
        problem = (
            f"makes {raised.shown(info)} of the pod, past the ResourceQuota {quota.metadata.name} of namespace "
            f"{pod.metadata.namespace}: {name} has hard {hard}, and {raised.shown(used)} are promised to its "
            "other pods"
        )
        raise InputError(
            raised.field, raised.asked, problem, "give less, lower another pod, or have the quota raised"
        )

    def _used_beside(self, pod: Pod, quota: ResourceQuota, *, with_waiting: bool) -> Amounts:
        """The sum that a quota counts in its namespace, without this pod; with or without pods that wait."""
        total = Amounts()
        for other in self.pods.in_namespace(pod.metadata.namespace):
            if other.metadata.uid != pod.metadata.uid and applies(quota, other):
                total = total.plus(self._has(other, with_waiting=with_waiting))
        return total

    def _has(self, pod: Pod, *, with_waiting: bool) -> Amounts:
        if pod.status.phase in TERMINAL_PHASES:
            return Amounts()
        booking = self.ledger.booking(PodUid(pod.metadata.uid))
        if booking is not None:
            return promised(booking, self.ledger)
        return _asked(pod) if with_waiting and not pod.spec.nodeName else Amounts()


def passes(quota: ResourceQuota, name: str, amount: int) -> bool:
    """Whether an amount is more than a quota allows of a resource."""
    return amount > parse_exact((quota.spec.hard or {})[name], f"ResourceQuota {quota.metadata.name}: {name}")


def _waits_for(quota: ResourceQuota, name: str, used: str, info: str) -> str:
    meta, hard = quota.metadata, (quota.spec.hard or {})[name]
    return (
        f"Pod waits for ResourceQuota {meta.name} of namespace {meta.namespace}: {name} has hard {hard}, {used} are "
        f"promised to its pods after raises, and this pod asks for {info}."
    )


def _asked(pod: Pod) -> Amounts:
    """The memory and share of a pod as Kubernetes counts them; zeros for a pod that is never placed."""
    try:
        asked = effective_requests(pod)
    except InputError:
        return Amounts()
    return Amounts(asked.get(GPU_MEMORY, 0), asked.get(GPU_SHARE, 0))


def promised(booking: Booking, ledger: Ledger) -> Amounts:
    """The promises to a pod, summed over its GPUs."""
    parts = [ledger.promise(booking, gpu) for gpu in {grant.gpu for grant in booking.grants}]
    return Amounts(sum(one.expected_bytes for one in parts), sum(one.share_pct for one in parts))


def _of_container(booking: Booking, change: ResizeChange) -> Amounts:
    grants = grants_of(booking, change.container)
    return Amounts(sum(grant.line_bytes for grant in grants), sum(grant.share_pct for grant in grants))


def _raised(change: ResizeChange, request: Resize) -> Iterator[_Raised]:
    """The resources of which the container gets more than it has."""
    old, new = _of_container(change.old, change), _of_container(change.new, change)
    if request.gpu_memory is not None and new.memory_bytes > old.memory_bytes:
        yield _Raised(MEMORY, GPU_MEMORY, request.gpu_memory, lambda one: one.memory_bytes, write_bytes)
    if request.gpu_share is not None and new.share_pct > old.share_pct:
        yield _Raised(SHARE, GPU_SHARE, request.gpu_share, lambda one: one.share_pct, str)


def applies(quota: ResourceQuota, pod: Pod) -> bool:
    """Whether a quota counts a pod, by its scopes."""
    selector = quota.spec.scopeSelector
    info = [ScopeRequirement(name, "Exists") for name in quota.spec.scopes or ()]
    info += (selector.matchExpressions if selector is not None else None) or ()
    return all(_meets(one, pod) for one in info)


def _meets(info: ScopeRequirement, pod: Pod) -> bool:
    """Whether a pod is in a scope. One that is not understood here has every pod."""
    is_ending, is_best_effort = pod.spec.activeDeadlineSeconds is not None, _is_best_effort(pod)
    affinity = pod.spec.affinity
    known = {
        "Terminating": is_ending,
        "NotTerminating": not is_ending,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
        "CrossNamespacePodAffinity": affinity is not None
        and (affinity.podAffinity, affinity.podAntiAffinity) != (None, None),
        "PriorityClass": _is_of_class(info, pod.spec.priorityClassName or ""),
    }
    return known.get(info.scopeName, True)


def _is_of_class(info: ScopeRequirement, name: str) -> bool:
    match info.operator:
        case "In":
            return name in (info.values or ())
        case "NotIn":
            return name not in (info.values or ())
        case "Exists":
            return name != ""
        case "DoesNotExist":
            return name == ""
        case _:
            return True


def _is_best_effort(pod: Pod) -> bool:
    """Whether Kubernetes' own class of the pod is BestEffort: no container asks for CPU or memory."""
    given = (one.resources for one in (*pod.spec.containers, *(pod.spec.initContainers or ()), pod.spec))
    amounts: Iterable[tuple[str, object]] = (
        item
        for one in given
        if one is not None
        for asked in (one.requests, one.limits)
        for item in (asked or {}).items()
    )
    return not any(name in ("cpu", "memory") and str(value) != "0" for name, value in amounts)
