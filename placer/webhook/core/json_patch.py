"""The difference of two JSON values as a JSON Patch (RFC 6902).

What always holds: the patch applied to the first value gives the second. Equal values give an empty patch.
"""

from collections.abc import Iterator
from typing import Any


def difference(before: Any, after: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """The operations that turn `before` into `after`. Lists of different lengths are replaced whole."""
    return list(_operations(before, after, ""))


def _operations(before: Any, after: Any, path: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - any JSON
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() - after.keys():
            yield {"op": "remove", "path": path + _step(key)}
        for key, value in after.items():
            if key in before:
                yield from _operations(before[key], value, path + _step(key))
            else:
                yield {"op": "add", "path": path + _step(key), "value": value}
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _operations(old, new, f"{path}/{at}")
    elif before != after or type(before) is not type(after):
        yield {"op": "replace", "path": path, "value": after}


def _step(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
