"""A patch turns one value into the other."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from placer.webhook.core.json_patch import difference

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b/c", "d~e"])
KEYS = st.sampled_from(["a", "b/c", "d~e", "", "~1"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)


def applied(patch: list[dict[str, Any]], value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value after a JSON Patch, by RFC 6902; independent of the code under test."""
    root = {"": copy.deepcopy(value)}
    for operation in patch:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")]
        holder: Any = root
        for step in steps[:-1]:
            holder = holder[int(step)] if isinstance(holder, list) else holder[step]
        if steps[-1] == "-":
            holder.append(operation["value"])
            continue
        key: Any = int(steps[-1]) if isinstance(holder, list) else steps[-1]
        if operation["op"] == "remove":
            del holder[key]
        else:
            assert operation["op"] == "add" or key in holder or isinstance(holder, list)
            holder[key] = operation["value"]
    return root[""]


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON
    """Equality that tells `1` from `true`, which Python does not."""
    return repr(one) == repr(other) or (
        type(one) is type(other)
        and (
            (
                isinstance(one, dict)
                and one.keys() == other.keys()
                and all(equal(one[k], other[k]) for k in one)
            )
            or (isinstance(one, list) and len(one) == len(other) and all(map(equal, one, other)))
        )
    )


@given(VALUES, VALUES)
def test_the_patch_gives_the_second_value(before: Any, after: Any) -> None:  # noqa: ANN401 - any JSON
    """Applied to the first value, the patch gives the second, for any two values."""
    assert equal(applied(difference(before, after), before), after)


@given(VALUES)
def test_equal_values_need_no_patch(value: Any) -> None:  # noqa: ANN401 - any JSON
    """A value and its copy have an empty patch."""
    assert difference(value, copy.deepcopy(value)) == []


@given(st.lists(VALUES, max_size=3), st.lists(VALUES, max_size=3))
def test_a_list_that_grows_is_not_sent_again(before: list[Any], more: list[Any]) -> None:
    """New entries at the end of a list are added one by one."""
    patch = difference(before, [*before, *more])
    assert applied(patch, before) == [*before, *more]
    assert [operation["value"] for operation in patch] == more


def test_the_patch_is_small() -> None:
    """Only what differs stands in the patch, with escaped keys."""
    before = {"a": {"x/y": 1, "same": [1, 2]}, "gone": 1}
    after = {"a": {"x/y": 2, "same": [1, 2]}, "new": 3}
    assert difference(before, after) == [
        {"op": "remove", "path": "/gone"},
        {"op": "replace", "path": "/a/x~1y", "value": 2},
        {"op": "add", "path": "/new", "value": 3},
    ]
