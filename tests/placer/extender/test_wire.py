"""The wire types read what kube-scheduler sends, and kube-scheduler reads what they write."""

import json

import msgspec
import pytest

from placer.extender.wire import (
    BindingArgs,
    ExtenderArgs,
    FilterResult,
    decode,
    filter_result,
    nodes_of,
    priorities,
)
from plimsoll.ids import NodeName
from plimsoll.part.errors import InputError

N1, N2, N3 = (NodeName(f"n{number}") for number in (1, 2, 3))
POD = {"metadata": {"name": "p", "namespace": "d", "uid": "u", "creationTimestamp": None}, "status": {}}


def read(question: object) -> tuple[ExtenderArgs, bytes]:
    """A question, decoded, and its bytes."""
    body = json.dumps(question).encode()
    return decode(body, ExtenderArgs), body


def test_names_of_nodes_come_back_as_names() -> None:
    """With `nodeCacheCapable` the answer names the nodes that pass, in their order, and the reasons of the others."""
    args, body = read({"Pod": POD, "Nodes": None, "NodeNames": ["n3", "n1", "n2"]})
    names = nodes_of(args, body)
    assert names == [N3, N1, N2]
    answer = json.loads(msgspec.json.encode(filter_result(args, names, {N1: "too full"})))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["n3", "n2"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"n1": "too full"},
        "Error": "",
    }


def test_whole_nodes_come_back_as_they_were() -> None:
    """Without `nodeCacheCapable` the answer has the very Node objects, fields that we do not know included."""
    items = [{"metadata": {"name": name}, "spec": {"novel": [name]}} for name in ("n1", "n2")]
    args, body = read({"Pod": POD, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None})
    names = nodes_of(args, body)
    assert names == [N1, N2]
    answer = json.loads(msgspec.json.encode(filter_result(args, names, {N1: "too full"})))
    assert answer["Nodes"] == {"items": [items[1]]}
    assert answer["NodeNames"] is None


def test_no_node_at_all_is_an_answer() -> None:
    """An empty list is a question; a question without any list is refused by field."""
    args, body = read({"Pod": POD, "Nodes": {"items": None}})
    assert nodes_of(args, body) == []
    assert filter_result(args, [], {}).nodes is not None
    args, body = read({"Pod": POD})
    with pytest.raises(InputError, match="Nodes: 'null' and NodeNames are both missing; send one of them"):
        nodes_of(args, body)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"Pod": null}', b'{"Pod": {"spec": {"containers": 3}}}']
)
def test_other_bodies_are_refused(body: bytes) -> None:
    """A body that is no question is refused with the field that is wrong."""
    with pytest.raises(InputError, match=r"^body: .* cannot be read \(.*\); send what kube-scheduler"):
        decode(body, ExtenderArgs)


def test_an_order_to_bind_is_read() -> None:
    """The names are Go's, `PodUID` included."""
    order = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1"}
    read = decode(json.dumps(order).encode(), BindingArgs)
    assert (read.name, read.pod_uid, read.node) == ("d/p", "u", "n1")


def test_priorities_are_0_to_10_in_proportion_to_the_best() -> None:
    """The best node has 10, equal nodes have equal priorities, and a node without a place has 0."""
    given = priorities({N1: 0.5, N2: 0.25, N3: 0.0})
    assert [(one.host, one.score) for one in given] == [("n1", 10), ("n2", 5), ("n3", 0)]
    assert [one.score for one in priorities({N1: 0.0, N2: 0.0})] == [0, 0]
    assert priorities({}) == []
    assert json.loads(msgspec.json.encode(given[0])) == {"Host": "n1", "Score": 10}


def test_an_error_is_an_answer() -> None:
    """kube-scheduler shows the text of the field `Error`."""
    assert json.loads(msgspec.json.encode(FilterResult(error="why")))["Error"] == "why"


@pytest.mark.parametrize("field", ["PodName", "PodNamespace"])
@pytest.mark.parametrize("name", ["../../nodes", "a/b", "a?b", "a%2fb", "a\n", "", "..", "A", "\u0661"])
def test_names_that_would_change_an_api_path_are_refused(field: str, name: str) -> None:
    """A name becomes a part of the path that the placer reads with its own rights."""
    order = {"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1"}
    assert decode(json.dumps(order).encode(), BindingArgs).name == "d/p"
    with pytest.raises(InputError, match=rf"cannot be read.*{field}"):
        decode(json.dumps({**order, field: name}).encode(), BindingArgs)
