"""Rules about other pods in the API's form, for tests."""

from typing import Any

Object = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def by_app(app: str) -> Object:
    """A selector of pods with this label."""
    return {"matchLabels": {"app": app}}


def spread(app: str = "x", key: str = "zone", **more: object) -> Object:
    """A spec with a constraint of skew 1."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": by_app(app),
        **more,
    }
    return {"topologySpreadConstraints": [constraint]}


def apart(app: str = "x", key: str = "host", **more: object) -> Object:
    """A spec with a term of required anti-affinity."""
    return {"affinity": {"podAntiAffinity": {REQUIRED: [_term(app, key, more)]}}}


def beside(app: str = "x", key: str = "zone", **more: object) -> Object:
    """A spec with a term of required affinity."""
    return {"affinity": {"podAffinity": {REQUIRED: [_term(app, key, more)]}}}


def evenly(app: str = "x", key: str = "zone", **more: object) -> Object:
    """A spec with a constraint of skew 1 that need not hold."""
    return spread(app, key, whenUnsatisfiable="ScheduleAnyway", **more)


def near(app: str = "x", key: str = "zone", weight: int = 100, **more: object) -> Object:
    """A spec with a term of preferred affinity."""
    return {"affinity": {"podAffinity": {PREFERRED: [_weighted(app, key, weight, more)]}}}


def far(app: str = "x", key: str = "host", weight: int = 100, **more: object) -> Object:
    """A spec with a term of preferred anti-affinity."""
    return {"affinity": {"podAntiAffinity": {PREFERRED: [_weighted(app, key, weight, more)]}}}


def _weighted(app: str, key: str, weight: int, more: Object) -> Object:
    return {"weight": weight, "podAffinityTerm": _term(app, key, more)}


def _term(app: str, key: str, more: Object) -> Object:
    return {"topologyKey": key, "labelSelector": by_app(app), **more}
