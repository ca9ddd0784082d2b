"""Reading and rewriting the resources of a pod's containers, for the dialects that ask by extended resources."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from plimsoll.contract import DOMAIN, RESOURCES, defaults_of
from plimsoll.part.errors import InputError
from plimsoll.quantity import parse_whole

Json = dict[str, Any]
"""A pod, or a part of one, as decoded JSON."""

KINDS = {"containers": "container", "initContainers": "init container"}
"""The fields of a pod's spec that may ask for GPUs, each with the word for one of its containers."""

_UNIT: Final = re.compile(r"[0-9.]*(?:[KMGTPE]i|[MGTPE])")
"""Amounts with a unit of bytes. `k` is none: the API server writes 3000 as 3k."""
_MOST_MIB: Final = 4 << 20
"""The most memory of one GPU, far more than any has."""


def containers_of(pod: Json) -> Iterator[tuple[str, Json]]:
    """Each container and init container, with the path by which messages name it."""
    for kind in KINDS:
        for container in pod["spec"].get(kind) or ():
            yield f"spec.{kind}[{container.get('name')}]", container


def asked_of(container: Json) -> dict[str, Any]:
    """A container's resources by name; a limit counts where request and limit are given."""
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def without_defaults(pod: Json, is_gpu: Callable[[str], bool]) -> tuple[Json, tuple[str, ...]]:
    """The pod in which a container that asks for GPUs of ours has 0 of what LimitRanges gave it of others.

    A default that is merely taken away comes back: the API server has it filled in again after each webhook. So it
    is after a translation too.

    Args:
        pod: a pod as the API server gives it; the same object returns where nothing is to be done.
        is_gpu: whether a resource is one by which a GPU is asked for.

    Returns:
        The pod, and a line for people on each change.
    """
    defaults = defaults_of((pod.get("metadata") or {}).get("annotations"))
    changes: list[str] = []

    def change(where: str, container: Json) -> Json:
        asked = {name: value for name, value in asked_of(container).items() if str(value) != "0"}
        who = f"{KINDS[where.split('.')[1].split('[', maxsplit=1)[0]]} {container.get('name')}"
        given = [name for name in asked if (name, who) in defaults and is_gpu(name) and name not in RESOURCES]
        if not given or not any(name in RESOURCES for name in asked):
            return container
        none = dict.fromkeys(given, "0")
        changes.extend(f"{where}.resources: {name}: {asked[name]} of a LimitRange became 0" for name in given)
        resources = container["resources"]
        filled = {kind: {**(resources.get(kind) or {}), **none} for kind in ("limits", "requests")}
        return {**container, "resources": {**resources, **filled}}

    found = with_containers(pod, change) if defaults else pod
    return (found, tuple(changes)) if changes else (pod, ())


def amount(value: object, field: str, unit: str) -> int:
    """An amount that another scheduler counts in `unit`: a whole number, 0 or more, without a unit of its own.

    Raises:
        InputError: the value is no such number. With `10G` for 10 GiB, the unit would be counted twice.
    """
    text = str(value).strip()
    if _UNIT.fullmatch(text):
        problem = f"has a unit, and the amount is in {unit} already"
        raise InputError(field, text, problem, f"write a number alone, in {unit}")
    whole = parse_whole(text, field, unit)
    if whole * {"GiB": 1024, "MiB": 1}.get(unit, 0) > _MOST_MIB:
        problem = f"is more {unit} than any GPU has"
        raise InputError(field, text, problem, f"write a number alone, in {unit}")
    return whole


def first_resource(pod: Json, names: Collection[str]) -> str | None:
    """The first field of the pod that asks for one of these resources."""
    for where, container in containers_of(pod):
        for name, value in asked_of(container).items():
            if name in names and str(value) != "0":
                return f"{where}.resources[{name}]"
    return None


def with_containers(pod: Json, change: Callable[[str, Json], Json]) -> Json:
    """The pod with each container and init container changed; `change` gets its path and the container."""
    spec = dict(pod["spec"])
    for kind in KINDS:
        if spec.get(kind):
            spec[kind] = [change(f"spec.{kind}[{one.get('name')}]", one) for one in spec[kind]]
    return {**pod, "spec": spec}


def with_resources(where: str, container: Json, dropped: Collection[str], given: Mapping[str, str]) -> Json:
    """The container without some resources, and with others as its limits.

    Raises:
        InputError: the container asks for a resource of ours already.
    """
    for name, value in asked_of(container).items():
        if name.startswith(DOMAIN):
            problem = "stands beside a request in another scheduler's way"
            raise InputError(f"{where}.resources[{name}]", value, problem, "ask in one way")
    resources = dict(container.get("resources") or {})
    for kind in ("limits", "requests"):
        if resources.get(kind):
            resources[kind] = {name: value for name, value in resources[kind].items() if name not in dropped}
            if not resources[kind]:
                del resources[kind]
    resources["limits"] = {**(resources.get("limits") or {}), **given}
    return {**container, "resources": resources}
