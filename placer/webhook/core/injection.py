"""The fields that a pod needs so that its containers see their GPUs, and no others, and are held to their lines.

A container with GPUs gets `NVIDIA_VISIBLE_DEVICES` from the annotation that the placer writes when it binds the pod,
the preload library, and a volume with its own pages. `LD_PRELOAD` puts the library before the author's preloads, and
a mount over `/etc/ld.so.preload` keeps it in programs that lose the variable. The pod gets the runtime class. A
container without GPUs gets `NVIDIA_VISIBLE_DEVICES=void`, because CUDA images ask for all GPUs by default. A
container with GPUs of another driver (`nvidia.com/…`, resource claims) is left alone: its device plugin sets the
variable, and ours would win over it.

The library needs no other variable: in a container it reads its directories, never the environment. What always
holds: a pod that has everything is returned as the same object. The given pod is never changed in place.
"""

import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from plimsoll.broker.volume import (
    CONTAINER_ATTRIBUTE,
    CONTAINER_LIBRARY,
    PRELOAD,
    PRELOADS_FILE,
    VISIBLE,
    VOLUME_NAME,
    can_hide,
    container_of,
    csi_volume,
    is_ours,
    normal_path,
    preloads,
    remedy_for_hiding,
    visible_field,
    volume_mounts,
)
from plimsoll.contract import GPU_COUNT, GPU_MEMORY, GPU_SHARE
from plimsoll.dialects import Json
from plimsoll.ids import ContainerName
from plimsoll.part.errors import InputError

NO_GPU: Final = "void"
"""The value for which NVIDIA's runtime injects nothing. An empty value would leave the image's own."""
OTHERS_PREFIX: Final = "nvidia.com/"
"""The domain of the GPU resources of NVIDIA's device plugin."""

_KINDS: Final = ("containers", "initContainers")


class Injector:
    """Puts into one pod what it lacks, and collects remarks for its author.

    Attributes:
        pod: the pod as far as it is done.
        remarks: lines for people about values of theirs that had to go, or that look wrong.
    """

    def __init__(self, pod: Json) -> None:
        self.pod = pod
        self.remarks: list[str] = []

    def inject(self, asking: frozenset[str], runtime_class: str | None) -> None:
        """Change all containers and init containers, and the pod's own fields.

        Args:
            asking: the names of the containers that ask for GPUs of ours.
            runtime_class: for a pod with GPUs; None sets none.

        Raises:
            InputError: a field of the author's stands where ours must be.
        """
        spec = self.pod["spec"]
        volumes = _volumes(spec, asking)
        mounts = _mounts(volumes, asking)
        for kind in _KINDS:
            if spec.get(kind):
                done = [
                    self._with_gpus(f"spec.{kind}[{one['name']}]", one, mounts[one["name"]])
                    if one["name"] in asking
                    else self._without_gpus(f"spec.{kind}[{one['name']}]", one)
                    for one in spec[kind]
                ]
                spec = _put(spec, kind, done)
        if asking:
            spec = _put(spec, "volumes", volumes)
            spec = self._with_runtime_class(spec, runtime_class)
        self.pod = _put(self.pod, "spec", spec)

    def blind_ephemeral(self, known: frozenset[str]) -> None:
        """Take the GPUs from ephemeral containers, except from `known` ones, which cannot be changed any more."""
        spec = self.pod["spec"]
        done = [
            one
            if one["name"] in known
            else self._without_gpus(f"spec.ephemeralContainers[{one['name']}]", one)
            for one in spec.get("ephemeralContainers") or ()
        ]
        if done:
            self.pod = _put(self.pod, "spec", _put(spec, "ephemeralContainers", done))

    def _with_gpus(self, where: str, container: Json, wanted: tuple[Json, ...]) -> Json:
        if (container.get("securityContext") or {}).get("privileged"):
            self.remarks.append(f"{where} is privileged: it can open every GPU of its node")
        field = visible_field(ContainerName(container["name"]))
        reference = {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}
        env = container.get("env") or []
        env = self._with_variable(where, env, {"name": VISIBLE, "valueFrom": reference})
        env = _with_preload(where, env)
        mounts = _with_mounts(where, container, self._beside(where, container, wanted))
        return _put(_put(_with_count(container), "env", env), "volumeMounts", mounts)

    def _beside(self, where: str, container: Json, wanted: tuple[Json, ...]) -> tuple[Json, ...]:
        """The mounts of ours, without the loader's file where the author mounts that file or its directory.

        The runtime would have to make the file in the author's volume, which may be read-only.
        """
        names = {one["name"] for one in wanted}
        for mount in container.get("volumeMounts") or ():
            path = normal_path(str(mount.get("mountPath")))
            if mount.get("name") not in names and path in {PRELOADS_FILE, posixpath.dirname(PRELOADS_FILE)}:
                effect = "programs without the variable LD_PRELOAD start without the library"
                self.remarks.append(
                    f"{where}.volumeMounts[{mount.get('name')}] has {PRELOADS_FILE}: {effect} unless that file "
                    f"names {CONTAINER_LIBRARY}"
                )
                return tuple(one for one in wanted if one["mountPath"] != PRELOADS_FILE)
        return wanted

    def _without_gpus(self, where: str, container: Json) -> Json:
        resources = container.get("resources") or {}
        others = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        if resources.get("claims") or any(name.startswith(OTHERS_PREFIX) for name in others):
            return container
        entry = {"name": VISIBLE, "value": NO_GPU}
        return _put(container, "env", self._with_variable(where, container.get("env") or [], entry))

    def _with_variable(self, where: str, env: list[Json], entry: Json) -> list[Json]:
        """The variables with exactly one entry of this name: this one, in the place of the first."""
        there = [one for one in env if one["name"] == entry["name"]]
        if there == [entry]:
            return env
        if there:
            self.remarks.append(f"{where}.env[{entry['name']}] was replaced: Plimsoll sets it")
        return _with_entry(env, entry)

    def _with_runtime_class(self, spec: Json, wanted: str | None) -> Json:
        if wanted is None:
            return spec
        there = spec.get("runtimeClassName")
        if there and there != wanted:
            self.remarks.append(f"spec.runtimeClassName: {there} stays; GPUs appear by {wanted} here")
            return spec
        return _put(spec, "runtimeClassName", wanted)


def _volumes(spec: Json, asking: frozenset[str]) -> list[Json]:
    """The pod's volumes with those of ours that it lacks: one for each container that asks for GPUs.

    A volume of ours may be its author's, under any name.

    Raises:
        InputError: a volume of ours names no container.
    """
    volumes: list[Json] = spec.get("volumes") or []
    served = {container_of(one): str(one["name"]) for one in volumes if is_ours(one)}
    if None in served:
        field = f"spec.volumes[{served[None]}].csi.volumeAttributes[{CONTAINER_ATTRIBUTE}]"
        remedy = "write a container's name, or remove the volume: the webhook adds what is missing"
        raise InputError(field, None, "is missing, so the volume belongs to no container", remedy)
    names = _free_names({str(one["name"]) for one in volumes})
    containers = (one["name"] for kind in _KINDS for one in spec.get(kind) or ())
    missing = [csi_volume(next(names), name) for name in containers if name in asking - served.keys()]
    return [*volumes, *missing] if missing else volumes


def _free_names(taken: set[str]) -> Iterator[str]:
    names = itertools.chain([VOLUME_NAME], (f"{VOLUME_NAME}-{number}" for number in itertools.count(2)))
    return (name for name in names if name not in taken)


def _mounts(volumes: list[Json], asking: frozenset[str]) -> Mapping[str, tuple[Json, ...]]:
    """The mounts of each container that asks for GPUs."""
    names = {container_of(one): str(one["name"]) for one in reversed(volumes) if is_ours(one)}
    return {container: volume_mounts(names[container]) for container in asking}


def _with_count(container: Json) -> Json:
    """The container with one GPU where it asks for memory or a share of no number of GPUs."""
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    asked = {*limits, *requests}
    if GPU_COUNT in asked or not asked & {GPU_MEMORY, GPU_SHARE}:
        return container
    filled = {"limits": {**limits, GPU_COUNT: "1"}, "requests": {**requests, GPU_COUNT: "1"}}
    return {**container, "resources": {**resources, **filled}}


def _with_preload(where: str, env: list[Json]) -> list[Json]:
    """The variables with the library in front of everything that the author preloads, as under `plimsoll run`.

    Raises:
        InputError: the value comes from elsewhere, so that it cannot be read here.
    """
    there = [one for one in env if one["name"] == PRELOAD]
    if any(one.get("valueFrom") is not None for one in there):
        problem = "comes from another object, and the library cannot be added to it"
        raise InputError(f"{where}.env[{PRELOAD}]", "valueFrom", problem, "write its value")
    value = (there[-1].get("value") or "") if there else ""
    if len(there) == 1 and CONTAINER_LIBRARY in preloads(value):
        return env
    # A line's end or a tab is in no library's name: its author meant a separator, as other loaders read it.
    others = [entry for entry in preloads(re.sub(r"\s", " ", value)) if entry != CONTAINER_LIBRARY]
    return _with_entry(env, {"name": PRELOAD, "value": ":".join([CONTAINER_LIBRARY, *others])})


def _with_entry(env: list[Json], entry: Json) -> list[Json]:
    names = [one["name"] for one in env]
    if entry["name"] not in names:
        return [*env, entry]
    first = names.index(entry["name"])
    rest = [one for one in env[first + 1 :] if one["name"] != entry["name"]]
    return [*env[:first], entry, *rest]


def _with_mounts(where: str, container: Json, wanted: tuple[Json, ...]) -> list[Json]:
    mounts = container.get("volumeMounts") or []
    missing = {(mount["name"], mount["mountPath"]): mount for mount in wanted}
    kept = []
    for mount in mounts:
        path = str(mount.get("mountPath"))
        ours = missing.pop((str(mount.get("name")), normal_path(path)), None)
        if ours is not None:
            kept.append(mount if mount == ours else ours)
        elif can_hide(normal_path(path)):
            problem = "is Plimsoll's place, or may hide it, and the webhook mounts it"
            field = f"{where}.volumeMounts[{mount.get('name')}]"
            raise InputError(field, path, problem, remedy_for_hiding(path))
        else:
            kept.append(mount)
    done = [*kept, *missing.values()]
    return mounts if done == mounts else done


def _put(there: Json, key: str, value: Any) -> Json:  # noqa: ANN401 - any JSON
    """The mapping with this value; the same object where the value is there already, or both are empty."""
    old = there.get(key)
    if old is value or (not old and not value) or _is_unchanged(old, value):
        return there
    return {**there, key: value}


def _is_unchanged(old: Any, new: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether two lists have the same objects, or two texts are equal."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(one is other for one, other in zip(old, new, strict=True))
    return isinstance(old, str) and bool(old == new)
