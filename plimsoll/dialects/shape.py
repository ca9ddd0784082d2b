"""The types of the fields of a pod that are rewritten, checked once before they are used as plain JSON.

The API server checks every pod by itself, but anybody who reaches the webhook's port can send anything, and nobody
has checked a manifest. What always holds: after `check_shape`, each named field is absent, null, or of its type.
"""

from typing import Any

import msgspec
from msgspec import Struct

from plimsoll.dialects.containers import Json
from plimsoll.part.errors import InputError


class _Named(Struct):
    name: str


class _FieldRef(Struct):
    fieldPath: str = ""  # noqa: N815 - the API's name, like every field below


class _Source(Struct):
    fieldRef: _FieldRef | None = None  # noqa: N815


class _Variable(_Named):
    value: str | None = None
    valueFrom: _Source | None = None  # noqa: N815


class _Mount(_Named):
    mountPath: str  # noqa: N815


class _Csi(Struct):
    driver: str | None = None


class _Volume(_Named):
    csi: _Csi | None = None


class _Security(Struct):
    privileged: bool | None = None


class _Resources(Struct):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None
    claims: list[Any] | None = None


class _Container(_Named):
    env: list[_Variable] | None = None
    volumeMounts: list[_Mount] | None = None  # noqa: N815
    securityContext: _Security | None = None  # noqa: N815
    resources: _Resources | None = None


class _Spec(Struct):
    containers: list[_Container]
    initContainers: list[_Container] | None = None  # noqa: N815
    ephemeralContainers: list[_Container] | None = None  # noqa: N815
    volumes: list[_Volume] | None = None
    schedulerName: str | None = None  # noqa: N815
    nodeName: str | None = None  # noqa: N815
    runtimeClassName: str | None = None  # noqa: N815


class _Metadata(Struct):
    annotations: dict[str, str] | None = None
    deletionTimestamp: str | None = None  # noqa: N815


class _Shape(Struct):
    spec: _Spec
    metadata: _Metadata | None = None


def check_shape(pod: Json) -> None:
    """Refuse an object that is no pod.

    Raises:
        InputError: a field has the wrong type, or is missing.
    """
    try:
        found = msgspec.convert(pod, _Shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise no_pod(error) from error
    if not found.spec.containers:
        raise InputError("spec.containers", [], "is empty", "give a container")


def no_pod(error: Exception) -> InputError:
    """The refusal of an object that cannot be read as a pod, by the path of the field where that is known."""
    message, _, path = str(error).partition(" - at `$.")
    return InputError(path.rstrip("`") or "object", "", f"is no pod ({message})", "give a pod of v1")
