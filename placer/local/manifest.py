"""From manifests to pods: YAML or JSON, several documents, each checked before any pod is returned.

What always holds: a pod from here has no field that the local front end would have to ignore. A feature that is not
handled is refused by name. Values that YAML would turn into dates stay strings, as in Kubernetes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import yaml

from plimsoll.contract import SCHEDULER_NAME
from plimsoll.kube.models import Pod, decode_pod
from plimsoll.part.errors import InputError

MANIFEST_BYTES: Final = 4 * 1024 * 1024
"""The longest manifest: more than a thousand pods. Parsing blocks the event loop, so its length is bounded."""

_SPEC: Final = {"containers", "restartPolicy", "schedulerName", "terminationGracePeriodSeconds"}
_CONTAINER: Final = {"name", "image", "imagePullPolicy", "command", "args", "env", "workingDir", "resources"}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_WRONG_TYPE: Final = re.compile(r"(?P<problem>.*?) - at `\$(?P<path>.*)`")


class _Loader(yaml.SafeLoader):
    """YAML's safe types without its dates: `2026-01-01` is a string in Kubernetes."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - yaml's own form
        first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def parse_manifests(text: str | bytes) -> list[Pod]:
    """The pods of a manifest, in its order.

    Raises:
        InputError: the text is no YAML, holds other objects than pods, or a pod uses a feature not handled here.
    """
    if len(text) > MANIFEST_BYTES:
        raise InputError(
            "manifest", f"{len(text)} bytes", "is too long", f"give at most {MANIFEST_BYTES} bytes"
        )
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        where = " ".join(str(error).split())
        raise InputError("manifest", _start(text), f"is no YAML ({where})", "mend the document") from error
    pods = [_pod(document) for document in _objects(documents)]
    if not pods:
        raise InputError("manifest", _start(text), "holds no pod", "give at least one document of kind Pod")
    return pods


def _objects(documents: list[Any]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise InputError("manifest", document, "is no object", "write apiVersion, kind, metadata, spec")
        if document.get("kind") == "List":
            yield from _objects(document.get("items") or [])
        else:
            yield document


def _pod(document: dict[str, Any]) -> Pod:
    for key, expected in (("apiVersion", "v1"), ("kind", "Pod")):
        if document.get(key) != expected:
            raise InputError(key, document.get(key), "is not handled locally", f"write {key}: {expected}")
    try:
        # Through JSON, because the models keep parts of a pod as raw JSON.
        pod = decode_pod(msgspec.json.encode(document))
    except msgspec.ValidationError as error:
        raise _mistyped(document, error) from error
    except TypeError as error:  # YAML has sets and bytes, JSON does not
        raise InputError("manifest", document, f"cannot be JSON ({error})", "write plain values") from error
    _check_names(pod)
    _check_features(document["spec"] if isinstance(document.get("spec"), dict) else {})
    return pod


def _check_names(pod: Pod) -> None:
    names = [("metadata.name", pod.metadata.name), ("metadata.namespace", pod.metadata.namespace)]
    names += [(f"spec.containers[{i}].name", one.name) for i, one in enumerate(pod.spec.containers)]
    for field, name in names:
        if not _NAME.fullmatch(name):
            raise InputError(field, name, "is no name", "use lower-case letters, digits, `-` and `.`")
    if not pod.spec.containers:
        raise InputError("spec.containers", [], "is empty", "give at least one container")
    if len({container.name for container in pod.spec.containers}) < len(pod.spec.containers):
        raise InputError("spec.containers", [n for _, n in names[2:]], "has a name twice", "rename one")


def _check_features(spec: Mapping[str, Any]) -> None:
    _refuse_others(spec, _SPEC, "spec")
    if spec.get("schedulerName", SCHEDULER_NAME) != SCHEDULER_NAME:
        remedy = f"write {SCHEDULER_NAME}, or leave it out"
        raise InputError("spec.schedulerName", spec["schedulerName"], "is another scheduler", remedy)
    if spec.get("restartPolicy", "Never") != "Never":
        remedy = "write restartPolicy: Never; local processes are not started again"
        raise InputError("spec.restartPolicy", spec["restartPolicy"], "is not handled locally", remedy)
    for container in spec.get("containers") or ():
        field = f"spec.containers[{container['name']}]"
        _refuse_others(container, _CONTAINER, field)
        if not container.get("command"):
            remedy = "give the command; local pods run no image"
            raise InputError(f"{field}.command", container.get("command"), "is missing", remedy)
        for variable in container.get("env") or ():
            if "valueFrom" in variable:
                name = f"{field}.env[{variable.get('name')}].valueFrom"
                raise InputError(name, variable["valueFrom"], "is not handled locally", "give a value")


def _refuse_others(given: Mapping[str, Any], handled: set[str], field: str) -> None:
    for key, value in given.items():
        if key not in handled and value not in (None, [], {}):
            raise InputError(f"{field}.{key}", value, "is not handled locally", "leave it out")


def _mistyped(document: dict[str, Any], error: msgspec.ValidationError) -> InputError:
    matched = _WRONG_TYPE.fullmatch(str(error))
    problem, path = (matched["problem"], matched["path"]) if matched else (str(error), "")
    field, value = _found(document, path)
    remedy = "quote it" if "`str`" in problem and isinstance(value, bool | int | float) else "mend it"
    return InputError(field or "manifest", value, f"has the wrong type ({problem})", remedy)


def _found(document: object, path: str) -> tuple[str, object]:
    """Field and value at msgspec's path, whose `[...]` stands for a key that msgspec does not name."""
    field, value = "", document
    for part in re.findall(r"\.[A-Za-z]+|\[\d+\]|\[\.\.\.\]", path):
        if part == "[...]" and isinstance(value, dict):
            key = next((key for key, item in value.items() if not isinstance(item, str)), None)
            field, value = f"{field}[{key}]", value.get(key)
        elif part.startswith("[") and isinstance(value, list):
            field, value = field + part, value[int(part[1:-1])]
        elif isinstance(value, dict):
            field, value = field + part, value.get(part[1:])
    return field.removeprefix("."), value


def _start(text: str | bytes) -> str:
    return (text if isinstance(text, str) else text.decode("utf-8", "replace"))[:80]
