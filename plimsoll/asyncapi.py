"""The events as documents for subscribers, made from the types: an AsyncAPI document, and a JSON Schema for each.

`python -m plimsoll.asyncapi docs/events` writes the copies in the repository.
"""

import argparse
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from plimsoll.envelope import CloudEvent, event_type
from plimsoll.events import LIMIT_EVENTS, Data, Foreign, Limit, Placement, PoolChange, Report
from plimsoll.gpu_events import HealthChange, NodeInfo, Pressure

CONTENT_TYPE: Final = "application/cloudevents+json"

Object = dict[str, Any]
"""A part of a document, in JSON's own types."""


@dataclass(frozen=True, slots=True)
class EventKind:
    """A sort of event.

    Attributes:
        what: the middle of its subject: `task.started`.
        data: the type of its data.
        summary: when it is published.
        of_node: its subject ends with the node's token.
    """

    what: str
    data: type[Data]
    summary: str
    of_node: bool = True

    @property
    def subject(self) -> str:
        """The subject, with the node's token as a parameter."""
        return f"plimsoll.v1.{self.what}" + (".{node}" if self.of_node else "")


_LIMIT_SUMMARIES: Final = {
    "violated": "NVML shows more memory or time of a container than its line or its page.",
    "unenforced": "A process of a declared container runs without its hook or without the broker.",
    "denied": "An allocation past the container's line was refused.",
    "paused": "An allocation waits for memory that other containers hold; again as a reminder.",
    "resumed": "An allocation has stopped waiting.",
    "resized": "A container's new line and share are in force.",
    "unmet": "A container wanted its requested compute time and got less.",
}

KINDS: Final = (
    EventKind("task.started", Report, "A process first appears on a GPU."),
    EventKind("task.loaded", Report, "A task's memory rose and then stood still; again after a reload."),
    EventKind("task.exited", Report, "A task is gone: it left the GPU, exited, or was killed."),
    EventKind(
        "node.state", Report, "The node's state changed without a task event, or the heartbeat is due."
    ),
    EventKind("node.foreign", Foreign, "Another monitor reports under this node's name."),
    EventKind("node.info", NodeInfo, "The node's hardware: at the start, after a change, and every hour."),
    EventKind("gpu.health", HealthChange, "A GPU's health changed: a condition came or went."),
    EventKind("gpu.pressure", Pressure, "A GPU's free memory became short, or is no longer short."),
    *(EventKind(f"limit.{what}", Limit, _LIMIT_SUMMARIES[what]) for what in sorted(LIMIT_EVENTS)),
    EventKind("pod.placed", Placement, "A pod was placed.", of_node=False),
    EventKind("pod.unplaceable", Placement, "A pod fits no node now; the reason says why.", of_node=False),
    EventKind("pod.foreign", Placement, "Somebody else bound a pod with GPUs.", of_node=False),
    EventKind("pod.preempted", Placement, "A pod was deleted to make room for another.", of_node=False),
    EventKind(
        "pod.relocated", Placement, "A pod was evicted, and room is kept for its replacement.", of_node=False
    ),
    EventKind("pool.acquired", PoolChange, "A GPU joined the pool of shared GPUs.", of_node=False),
    EventKind("pool.released", PoolChange, "A GPU went back to NVIDIA's device plugin.", of_node=False),
    EventKind("pool.lost", PoolChange, "A GPU of the pool lost its reservation.", of_node=False),
)
"""Every event that Plimsoll publishes."""


def schema(kind: EventKind) -> Object:
    """The JSON Schema of an event with its envelope, complete in itself."""
    envelope, data, definitions = _components(kind, "#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{event_type(kind.what)}.json",
        **_event(kind, envelope, data),
        "$defs": definitions,
    }


def document() -> Object:
    """The AsyncAPI 3.0 document of all events."""
    messages, schemas = Object(), Object()
    for kind in KINDS:
        envelope, data, definitions = _components(kind, "#/components/schemas/{name}")
        schemas |= definitions
        messages[kind.what] = {
            "name": event_type(kind.what),
            "summary": kind.summary,
            "contentType": CONTENT_TYPE,
            "payload": _event(kind, envelope, data),
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Plimsoll events",
            "version": "v1",
            "description": "CloudEvents 1.0 in structured JSON, on the JetStream stream PLIMSOLL. "
            "docs/events.md says what subscribers may rely on.",
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {kind.what: _channel(kind) for kind in KINDS},
        "operations": {kind.what: _operation(kind) for kind in KINDS},
        "components": {"messages": messages, "schemas": schemas},
    }


def files() -> dict[str, bytes]:
    """Each document by its path under `docs/events`."""
    documents = {f"schemas/{kind.what}.json": schema(kind) for kind in KINDS}
    return {path: _encoded(each) for path, each in {"asyncapi.json": document(), **documents}.items()}


def _channel(kind: EventKind) -> Object:
    channel: Object = {
        "address": kind.subject,
        "messages": {kind.what: {"$ref": f"#/components/messages/{kind.what}"}},
    }
    if kind.of_node:
        channel["parameters"] = {"node": {"description": "The node's name, with `_` for `.`."}}
    return channel


def _operation(kind: EventKind) -> Object:
    channel = f"#/channels/{kind.what}"
    return {
        "action": "send",
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{kind.what}"}],
    }


def _components(kind: EventKind, reference: str) -> tuple[Object, Object, Object]:
    """The schema of the envelope, the schema of the data, and the definitions to which the data refers."""
    (data,), definitions = msgspec.json.schema_components([kind.data], ref_template=reference)
    for each in definitions.values():
        each["description"] = inspect.cleandoc(each["description"])
    _, envelopes = msgspec.json.schema_components([CloudEvent])
    return envelopes["CloudEvent"], data, definitions


def _event(kind: EventKind, envelope: Object, data: Object) -> Object:
    required = {"specversion", "id", "source", "type", "time", "datacontenttype", "data"}
    # An absent attribute is left out: CloudEvents knows no null.
    texts: Object = {name: {"type": "string", "minLength": 1} for name in envelope["properties"]}
    fixed: Object = {
        "specversion": {"const": "1.0"},
        "type": {"const": event_type(kind.what)},
        "time": {"type": "string", "format": "date-time"},
        "datacontenttype": {"const": "application/json"},
        "data": data,
    }
    if kind.data is Report:
        required.add("sequence")
        fixed["sequence"] = {"type": "string", "pattern": r"^\d{16}\.\d{16}$"}
    return {
        "title": event_type(kind.what),
        "description": kind.summary,
        "type": "object",
        "properties": {**texts, **fixed},
        "required": sorted(required),
    }


def _encoded(document: Object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1) + b"\n"


def _write(directory: Path) -> None:
    for path, text in files().items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(text)


def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m plimsoll.asyncapi",
        description="Write the AsyncAPI document and the JSON Schemas of all events.",
    )
    parser.add_argument(
        "directory", type=Path, metavar="DIRECTORY", help="where to write, such as docs/events"
    )
    _write(parser.parse_args().directory)


if __name__ == "__main__":
    _main()
