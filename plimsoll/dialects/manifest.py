"""A manifest of another GPU scheduler in our terms: all its pods and pod templates, in objects of any kind.

A pod template is any mapping with `spec.containers`, so workloads of other projects (`PyTorchJob`, …) are covered
too. What always holds: each scalar that no dialect changes is written as it stood in the text, in the same quotes, so
it means the same to every reader of YAML. JSON stays JSON. Comments are lost, and aliases and merged mappings are
written out: pods that share a part in the text may differ afterwards.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeVar

import msgspec
import yaml
from yaml.composer import ComposerError
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode
from yaml.representer import SafeRepresenter
from yaml.resolver import BaseResolver

from plimsoll.contract import SCHEDULER_NAME, refuse_node_name
from plimsoll.demand import parse_pod
from plimsoll.dialects import Dialect, Json, translated
from plimsoll.dialects.containers import KINDS
from plimsoll.dialects.foreign import refuse_annotations, refuse_foreign, whose_resource
from plimsoll.dialects.shape import check_shape, no_pod
from plimsoll.kube.models import decode_pod
from plimsoll.part.errors import InputError

_Resolver = TypeVar("_Resolver", bound=BaseResolver)

_MERGE: Final = "tag:yaml.org,2002:merge"
_NULL: Final = "tag:yaml.org,2002:null"
_TEXT: Final = "tag:yaml.org,2002:str"
_PLAIN: Final = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null|nan|inf)$)[a-z][a-z0-9_./-]*", re.IGNORECASE
)
"""Texts that every reader of YAML takes for a text without quotes, as all our keys."""

_MARKS: Final = re.compile("^\ufeff", re.MULTILINE)
"""Byte order marks: at the beginning, and where files were put together."""

_FIRST: Final = re.compile(r"[ \t\r\n]*[{\[]")
"""The beginning of an object or a list in JSON."""

_MOST_NODES: Final = 1_000_000
"""The most values of a manifest; etcd takes 1.5 MB for one object."""

_AMOUNTS: Final = {"limits", "requests", "hard", "default", "defaultRequest", "max", "min"}
"""Fields whose values are amounts by the names of resources."""

_NUMBERS: Final = {
    "int": re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$"),
    "float": re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
}
"""The numbers that kubectl reads. Unlike YAML 1.1 it reads `22:30` and a date as texts, and `1e-4` as a number."""


def _resolving_as_kubectl(kind: type[_Resolver]) -> type[_Resolver]:
    replaced = {"tag:yaml.org,2002:timestamp", *(f"tag:yaml.org,2002:{name}" for name in _NUMBERS)}
    kind.yaml_implicit_resolvers = {
        first: [one for one in resolvers if one[0] not in replaced]
        for first, resolvers in kind.yaml_implicit_resolvers.items()
    }
    for name, form in _NUMBERS.items():
        kind.add_implicit_resolver(f"tag:yaml.org,2002:{name}", form, list("-+.0123456789"))
    return kind


@_resolving_as_kubectl
class _Loader(yaml.SafeLoader):
    """Resolves texts without quotes as kubectl does, and puts merged mappings in their places."""

    def compose_mapping_node(self, anchor: Any) -> MappingNode:  # noqa: ANN401 - as PyYAML has it
        """A mapping with each key once.

        Raises:
            ComposerError: a key is given twice, or is no text; kubectl refuses both too.
        """
        node: MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise ComposerError(None, None, "a key is no text", key.start_mark)
            if key.tag != _MERGE and key.value in seen:
                raise ComposerError(None, None, f"the key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        self.flatten_mapping(node)
        # Merged keys come first, and the mapping's own win over them.
        node.value = list({key.value: (key, value) for key, value in node.value}.values())
        return node


@_resolving_as_kubectl
class _Dumper(yaml.SafeDumper):
    """Writes a text in quotes where `_Loader` would resolve it otherwise."""


def convert(text: str, dialects: Sequence[Dialect]) -> tuple[str, list[str]]:
    """The manifest in our terms, in the format of the text, and a line for people on each change.

    Args:
        text: YAML, one document or several; or JSON, one object or several one behind the other.
        dialects: those to understand.

    Raises:
        InputError: the text is no manifest, or has a pod that cannot be translated.
    """
    text = _MARKS.sub("", text)
    try:
        conversion, objects = _Conversion(dialects), _json_objects(text)
        # Outside of texts, where JSON has none, YAML takes no tabs.
        sources = [one.replace("\t", " ") for one in objects] if objects else [text]
        documents = [
            one for source in sources for one in yaml.compose_all(source, _Loader) if one.tag != _NULL
        ]
        if (bare := next((one for one in documents if isinstance(one, ScalarNode)), None)) is not None:
            raise InputError("manifest", bare.value[:40], "is no object", "give Kubernetes objects")
        done = [_without_aliases(conversion.converted(one, ())) for one in documents]
        if objects:
            texts = (json.dumps(_json(one), indent=4, ensure_ascii=False, allow_nan=False) for one in done)
            return "".join(f"{one}\n" for one in texts), conversion.changes
        written = yaml.serialize_all(done, Dumper=_Dumper, allow_unicode=True, width=2**16)
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(text, error) from error
    except (yaml.YAMLError, ValueError) as error:
        problem = f"is no YAML ({' '.join(str(error).split())})"
        raise InputError("manifest", text[:40], problem, "give Kubernetes objects") from error
    except RecursionError as error:
        raise InputError("manifest", text[:40], "is nested too deeply", "give Kubernetes objects") from error
    return written, conversion.changes


def _json_objects(text: str) -> list[str]:
    """The objects of a text that is JSON, one behind the other; empty for any other text."""
    decoder, objects, at = json.JSONDecoder(parse_constant=_no_number), list[str](), 0
    while start := _FIRST.match(text, at):
        try:
            _, at = decoder.raw_decode(text, start.end() - 1)
        except ValueError:
            return []
        objects.append(text[start.end() - 1 : at])
    return [] if text[at:].strip() else objects


def _no_number(text: str) -> NoReturn:
    """Python would read NaN and Infinity, which are no JSON."""
    raise ValueError(text)


def _json(node: Node) -> Any:  # noqa: ANN401 - any JSON
    """The value of a node that was read from JSON, or made here."""
    if isinstance(node, MappingNode):
        return {_json_text(str(key.value)): _json(value) for key, value in node.value}
    if isinstance(node, SequenceNode):
        return [_json(one) for one in node.value]
    assert isinstance(node, ScalarNode)
    return _json_text(node.value) if node.tag == _TEXT else json.loads(node.value)


def _json_text(text: str) -> str:
    """A text whose characters beyond 16 bits JSON may have given by two escapes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _no_yaml(text: str, error: yaml.MarkedYAMLError) -> InputError:
    """The refusal of a text that is no YAML, by the number of its line."""
    mark = error.problem_mark or error.context_mark
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    remedy = "mend the line"
    if "{{" in line:
        remedy = "render the template first, as by helm template"
    elif line.lstrip(" ").startswith("\t"):
        remedy = "indent by spaces"
    problem = " ".join(f"is no YAML ({error.problem or error.context})".split())
    return InputError(f"manifest line {mark.line + 1 if mark else 1}", line[:80], problem, remedy)


def _without_aliases(root: Node) -> Node:
    """The node with each part that stands in several places written in each.

    Raises:
        ValueError: the whole would be larger than any manifest.
    """
    left = [_MOST_NODES]

    def copied(node: Node) -> Node:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError(f"more than {_MOST_NODES} values with its aliases written out")
        if isinstance(node, MappingNode):
            pairs = [(copied(key), copied(value)) for key, value in node.value]
            return MappingNode(node.tag, pairs, flow_style=node.flow_style)
        if isinstance(node, SequenceNode):
            return SequenceNode(node.tag, [copied(one) for one in node.value], flow_style=node.flow_style)
        assert isinstance(node, ScalarNode)
        return ScalarNode(node.tag, node.value, style=node.style)

    return copied(root)


@dataclass(slots=True)
class _Conversion:
    """The conversion of one text.

    Attributes:
        dialects: those to understand.
        changes: a line for people on each change.
    """

    dialects: Sequence[Dialect]
    changes: list[str] = field(default_factory=list)
    _done: dict[Node, Node] = field(default_factory=dict)  # a node that has aliases is converted once

    def converted(self, node: Node, path: tuple[str, ...]) -> Node:
        """A node in our terms; the same node where nothing changes."""
        known = self._done.get(node)
        if known is None:
            known = self._done[node] = self._converted(node, path)
        return known

    def _converted(self, node: Node, path: tuple[str, ...]) -> Node:
        if isinstance(node, SequenceNode):
            items = [self.converted(one, (*path, f"[{at}]")) for at, one in enumerate(node.value)]
            return _with(node, items)
        if not isinstance(node, MappingNode):
            return node
        if _is_pod(node):
            return self._translated(node, path)
        kind, metadata = _child(node, "kind"), _child(node, "metadata")
        inner = path
        if isinstance(kind, ScalarNode):
            name = _child(metadata, "name") if isinstance(metadata, MappingNode) else None
            inner = (*path, f"{kind.value}/{name.value if isinstance(name, ScalarNode) else None}")
        self._refuse_outside(node, inner)
        before = len(self.changes)
        parts = [(key, self.converted(one, (*inner, str(key.value)))) for key, one in node.value]
        scheduler = _child(node, "schedulerName")
        if (
            isinstance(scheduler, ScalarNode)
            and scheduler.value != SCHEDULER_NAME
            and len(self.changes) > before
        ):
            problem = "is given for all pods of the object, and would win over that of a converted pod"
            field = f"{_named({}, inner)}schedulerName"
            raise InputError(field, scheduler.value, problem, f"write {SCHEDULER_NAME}, or remove it")
        return _with(node, parts)

    def _refuse_outside(self, node: MappingNode, path: tuple[str, ...]) -> None:
        """Refuse what asks another scheduler where no pod template is, as in an Argo step or a ResourceQuota.

        Annotations of an object with a `spec` count for no pod there; people put them beside the template by mistake.
        """
        if path and path[-1] in _AMOUNTS:
            for key, value in node.value:
                if whose := whose_resource(re.sub(r"^(?:requests|limits)\.", "", str(key.value))):
                    field = (
                        f"{_named({}, path)}{'.'.join(one for one in path if '/' not in one)}[{key.value}]"
                    )
                    problem = f"is {whose}, and stands in no pod or pod template"
                    raise InputError(field, str(value.value), problem, "write it in our terms yourself")
        metadata = _child(node, "metadata")
        annotations = _child(metadata, "annotations") if isinstance(metadata, MappingNode) else None
        if _child(node, "spec") is not None and isinstance(annotations, MappingNode):
            given = {str(key.value): one.value for key, one in annotations.value}
            refuse_annotations(_named({}, path), given, "write it in the annotations of the pod template")

    def _translated(self, node: MappingNode, path: tuple[str, ...]) -> Node:
        pod = _value(node)
        named = _named(pod, path)
        try:
            found = translated(pod, self.dialects)
            if found.changes:
                check_shape(found.pod)
                _check_contract(found.pod)
            else:
                refuse_foreign(pod)
        except InputError as error:
            raise _of_object(named, error) from error
        except (KeyError, TypeError, AttributeError) as error:
            raise _of_object(named, _shape_error(pod, error)) from error
        self.changes += [named + change for change in found.changes]
        return _rewritten(node, pod, found.pod)


def _of_object(named: str, error: InputError) -> InputError:
    return InputError(f"{named}{error.field}", error.value, error.problem, error.remedy)


def _shape_error(pod: Json, cause: Exception) -> InputError:
    """The refusal of a mapping with containers that is no pod."""
    try:
        check_shape(pod)
    except InputError as error:
        return error
    return no_pod(cause)


def _check_contract(pod: Json) -> None:
    """Refuse a pod that our own contract refuses; what the contract does not read may be wrong."""
    annotations = (pod.get("metadata") or {}).get("annotations")
    kept = ("name", "resources", "restartPolicy")
    asking = {
        kind: [{key: one[key] for key in kept if key in one} for one in pod["spec"].get(kind) or ()]
        for kind in KINDS
    }
    demand = parse_pod(
        decode_pod(msgspec.json.encode({"metadata": {"annotations": annotations}, "spec": asking}))
    )
    if demand.containers:
        refuse_node_name(pod["spec"].get("nodeName"))


def _value(node: Node) -> Any:  # noqa: ANN401 - any YAML
    """The value of a node."""
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _rewritten(node: Node, old: object, new: object) -> Node:
    """A node for a new value. Whatever is equal to the old value is written as before."""
    if new is old or (type(new) is type(old) and new == old):
        return node
    if isinstance(node, MappingNode) and isinstance(old, dict) and isinstance(new, dict):
        nodes = {_value(key): (key, one) for key, one in node.value}
        kept = [(nodes[key][0], _rewritten(nodes[key][1], old[key], new[key])) for key in old if key in new]
        added = [(_written(key), _written(value)) for key, value in new.items() if key not in old]
        return _with(node, kept + added)
    if isinstance(node, SequenceNode) and isinstance(old, list) and isinstance(new, list):
        if len(old) == len(new):
            return _with(node, [_rewritten(*parts) for parts in zip(node.value, old, new, strict=True)])
        return _with(node, [_written(one) for one in new])
    return _written(new)


def _written(value: object) -> Node:
    """A node for a value that was not in the text."""
    if isinstance(value, dict):
        pairs = [(_written(key), _written(one)) for key, one in value.items()]
        return MappingNode("tag:yaml.org,2002:map", pairs, flow_style=False)
    if isinstance(value, list):
        return SequenceNode("tag:yaml.org,2002:seq", [_written(one) for one in value], flow_style=False)
    if isinstance(value, str):
        return ScalarNode(_TEXT, value, style=None if _PLAIN.fullmatch(value) else '"')
    return SafeRepresenter().represent_data(value)


def _with(node: CollectionNode, parts: list[Any]) -> Node:
    """A copy of a sequence or mapping with other parts; the node itself if they are the same."""
    if len(parts) == len(node.value) and all(
        one is other or (isinstance(one, tuple) and one[0] is other[0] and one[1] is other[1])
        for one, other in zip(parts, node.value, strict=True)
    ):
        return node
    return type(node)(node.tag, parts, flow_style=node.flow_style)


def _is_pod(node: MappingNode) -> bool:
    spec = _child(node, "spec")
    containers = _child(spec, "containers") if isinstance(spec, MappingNode) else None
    return isinstance(containers, SequenceNode) and bool(containers.value)


def _child(node: MappingNode, name: str) -> Node | None:
    return next((one for key, one in node.value if isinstance(key, ScalarNode) and key.value == name), None)


def _named(pod: dict[Any, Any], path: Iterable[str]) -> str:
    """The beginning of a line about a pod or template: the object that it belongs to."""
    kinds = [one for one in path if "/" in one]
    if pod.get("kind") == "Pod":
        kinds.append(f"Pod/{(pod.get('metadata') or {}).get('name')}")
    return f"{kinds[-1]}: " if kinds else ""
