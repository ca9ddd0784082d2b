"""The chart as tests see it: rendered for a set of values, as objects."""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from tools.chart import NAMESPACE, render

Object = dict[str, Any]

EVERYTHING: Final[Mapping[str, Any]] = {
    "image": {"registry": "registry.example.com/gpu", "digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "my-registry"}],
    "apiServer": {"host": "192.0.2.1"},
    "overcommitRatio": 1.5,
    "enforcement": "preload",
    "enforcementPools": ["both", "driver"],
    "stream": {"replicas": 3, "maxBytes": 250_000_000_000, "maxAgeS": 86_400},
    "placer": {
        "replicas": 1,
        "auth": "kubernetes",
        "settings": {"policy": "binpack", "violation_grace_s": 30, "on_violation": "evict"},
    },
    "extender": {"enabled": True, "tlsSecret": "extender-tls"},
    "pool": {"enabled": True, "policy": "hybrid(1, 300)"},
    "alerts": {"enabled": True, "alertmanagerUrl": "http://am:9093", "settings": {"resend_s": 30}},
    "webhook": {
        "url": "https://192.0.2.2:8443/review",
        "dialects": {"hami": True, "gpushare": "GiB", "kai": True},
        "excludedNamespaces": ["kube-system"],
    },
    "monitor": {"seLinuxOptions": {"type": "spc_t"}},
    "broker": {
        "settings": {"wait_policy": "best-fit", "wait_longest_s": 1_000_000},
        "seLinuxOptions": {"level": "s0"},
    },
    "certificateAuthority": {"secret": "authority"},
    "nats": {"replicas": 3, "tlsSecret": "nats-tls", "storage": {"size": "500G"}},
    "redis": {"tlsSecret": "redis-tls"},
    "networkPolicy": {"readers": [{"namespaceSelector": {}}], "operators": [{"namespaceSelector": {}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "gpuAccessPolicy": {"enabled": True},
}
"""Every flag that renders something more is on."""

OUTSIDE: Final[Mapping[str, Any]] = {
    "nats": {"enabled": False, "external": {"secret": "bus"}},
    "redis": {"enabled": False, "external": {"url": "redis+sentinel://192.0.2.3/plimsoll/0"}},
    "csi": {"enabled": False},
    "gpuAccess": "default-runtime",
    "placer": {"hostNetwork": True, "auth": "token", "tokenSecret": "placer-token"},
    "webhook": {"hostNetwork": True},
    "monitor": {"hostNetwork": True},
    "broker": {"hostNetwork": True},
}
"""Servers of one's own, and no network for pods."""

CASES: Final = {"defaults": {}, "everything": EVERYTHING, "outside": OUTSIDE}


@functools.cache
def _rendered(values: str) -> Mapping[str, str]:
    return render(json.loads(values), with_tests=True)


def texts(values: Mapping[str, Any]) -> Mapping[str, str]:
    """The text of each template; rendered once for equal values."""
    return _rendered(json.dumps(values, sort_keys=True))


@functools.cache
def _read(values: str) -> tuple[Object, ...]:
    # By the reader in C: the one in Python takes as long as the rest of such a test.
    loaded = (yaml.load_all(text, Loader=yaml.CSafeLoader) for text in _rendered(values).values())
    return tuple(one for ones in loaded for one in ones if one)


def objects(values: Mapping[str, Any]) -> tuple[Object, ...]:
    """Every object that the chart renders. Tests share them, so nobody changes one."""
    return _read(json.dumps(values, sort_keys=True))


def named(values: Mapping[str, Any], kind: str, name: str) -> Object:
    """The object of this kind and name."""
    [found] = [one for one in objects(values) if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def templates(values: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    """The name and the pod template of each workload."""
    for one in objects(values):
        if "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"]


def environment(values: Mapping[str, Any], workload: str) -> dict[str, Any]:
    """The variables of a workload's only container; those from elsewhere have their `valueFrom`."""
    found = [one for name, one in templates(values) if name == workload]
    if not found:
        return {}  # a part that these values leave out
    [container] = found[0]["spec"]["containers"]
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", ())}


__all__ = [
    "CASES",
    "EVERYTHING",
    "NAMESPACE",
    "OUTSIDE",
    "Object",
    "environment",
    "named",
    "objects",
    "templates",
    "texts",
]
