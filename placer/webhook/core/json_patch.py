"""The difference of two JSON values as a JSON Patch (RFC 6902).

What always holds: the patch applied to the first value gives the second. Equal values give an empty patch.
"""

from collections.abc import Iterator
from typing import Any


def difference(before: Any, after: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """The operations that turn `before` into `after`. A list that did more than grow at its end is replaced whole."""
    return list(_operations(before, after, ""))


def _operations(before: Any, after: Any, path: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """The operations that turn `before` into `after`. A list that did more than grow at its end is replaced whole."""
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_mappings(before, after, path)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _operations(old, new, f"{path}/{at}")
    elif isinstance(before, list) and isinstance(after, list) and _is_beginning(before, after):
        for new in after[len(before) :]:
            yield {"op": "add", "path": path + "/-", "value": new}
    elif before != after or type(before) is not type(after):
        yield {"op": "replace", "path": path, "value": after}


def _of_mappings(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    for key in before.keys() - after.keys():
        yield {"op": "remove", "path": path + _step(key)}
    for key, value in after.items():
        if key in before:
            yield from _operations(before[key], value, path + _step(key))
        else:
            yield {"op": "add", "path": path + _step(key), "value": value}


def _is_beginning(before: list[Any], after: list[Any]) -> bool:
    """Whether the second list begins with the very objects of the first."""
    return len(before) < len(after) and all(old is new for old, new in zip(before, after, strict=False))


def _step(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
