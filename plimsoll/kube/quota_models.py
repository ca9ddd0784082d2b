"""The fields of ResourceQuotas and LimitRanges that Plimsoll reads, and no others; see `plimsoll.kube.models`."""

from msgspec import Struct

from plimsoll.kube.models import ObjectMeta, Quantities


class ScopeRequirement(Struct, frozen=True):
    """A `spec.scopeSelector.matchExpressions` entry of a quota."""

    scopeName: str = ""  # noqa: N815 - the API's name, like every field below
    operator: str = ""
    values: list[str] | None = None


class ScopeSelector(Struct, frozen=True):
    """`spec.scopeSelector` of a quota: a pod must meet every entry."""

    matchExpressions: list[ScopeRequirement] | None = None  # noqa: N815


class QuotaSpec(Struct, frozen=True):
    """`spec` of a quota; `scopes` are names that a pod must meet without a value."""

    hard: Quantities | None = None
    scopes: list[str] | None = None
    scopeSelector: ScopeSelector | None = None  # noqa: N815


class ResourceQuota(Struct, frozen=True):
    """A `ResourceQuota` of `v1`. Its status is not read: Kubernetes counts what pods asked for when they came."""

    metadata: ObjectMeta = ObjectMeta()
    spec: QuotaSpec = QuotaSpec()


class QuotaList(Struct, frozen=True):
    """The quotas of a namespace."""

    items: list[ResourceQuota] = []


class LimitRangeItem(Struct, frozen=True):
    """A `spec.limits` entry of a limit range; `type` is `Container`, `Pod` or that of another object."""

    type: str = ""
    max: Quantities | None = None


class LimitRangeSpec(Struct, frozen=True):
    """`spec` of a limit range."""

    limits: list[LimitRangeItem] = []


class LimitRange(Struct, frozen=True):
    """A `LimitRange` of `v1`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class LimitRangeList(Struct, frozen=True):
    """The limit ranges of a namespace."""

    items: list[LimitRange] = []
