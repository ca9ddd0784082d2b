"""A manifest of another GPU scheduler in our terms: all its pods and pod templates, in objects of any kind.

A pod template is any mapping with `spec.containers`, so workloads of other projects (`PyTorchJob`, …) are covered
too. Comments and layout of the text are lost.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from plimsoll.dialects import Dialect, translated
from plimsoll.part.errors import InputError


def convert(text: str, dialects: Sequence[Dialect]) -> tuple[str, list[str]]:
    """The manifest in our terms, as YAML, and a line for people on each change.

    Args:
        text: YAML or JSON, one document or several.
        dialects: those to understand.

    Raises:
        InputError: the text is no manifest, or has a pod that cannot be translated.
    """
    try:
        documents = list(yaml.safe_load_all(text))
        changes: list[str] = []
        done = [_converted(one, dialects, (), changes) for one in documents if one is not None]
        return yaml.safe_dump_all(done, sort_keys=False, allow_unicode=True, width=2**16), changes
    except (yaml.YAMLError, ValueError) as error:  # a date that does not exist is a ValueError
        raise InputError("manifest", text[:40], f"is no YAML ({error})", "give Kubernetes objects") from error
    except RecursionError as error:
        raise InputError("manifest", text[:40], "is nested too deeply", "give Kubernetes objects") from error


def _converted(value: Any, dialects: Sequence[Dialect], path: tuple[str, ...], changes: list[str]) -> Any:  # noqa: ANN401 - any YAML
    if isinstance(value, list):
        return [_converted(one, dialects, (*path, f"[{at}]"), changes) for at, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if _is_pod(value):
        named = _named(value, path)
        try:
            found = translated(value, dialects)
        except InputError as error:
            raise InputError(f"{named}{error.field}", error.value, error.problem, error.remedy) from error
        except (KeyError, TypeError, AttributeError) as error:
            remedy = "mend the manifest first"
            raise InputError(named.rstrip(": "), "", f"is no pod ({error!r})", remedy) from error
        changes += [named + change for change in found.changes]
        return found.pod
    inner = path
    if isinstance(value.get("kind"), str):
        metadata = value.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        inner = (*path, f"{value['kind']}/{name}")
    return {key: _converted(one, dialects, (*inner, str(key)), changes) for key, one in value.items()}


def _is_pod(value: dict[Any, Any]) -> bool:
    spec = value.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list) and bool(spec["containers"])


def _named(value: dict[Any, Any], path: Iterable[str]) -> str:
    """The beginning of a line about a pod or template: the object that it belongs to."""
    kinds = [one for one in path if "/" in one]
    if value.get("kind") == "Pod":
        kinds.append(f"Pod/{(value.get('metadata') or {}).get('name')}")
    return f"{kinds[-1]}: " if kinds else ""
