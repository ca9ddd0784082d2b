"""A node of the local front end: a name, its broker, and the environment of its processes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from plimsoll.ids import NodeName
from plimsoll.part.errors import InputError


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node on which pods run as processes.

    Attributes:
        name: the name in the reports of the node's monitor.
        broker_socket: the control socket of the node's broker, `<root>/broker.sock`.
        environment: variables of its processes; on an emulated node, those that select the emulator.
        output: the folder for the output of its processes; None: the placer's own output.
    """

    name: NodeName
    broker_socket: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None

    @property
    def broker_root(self) -> Path:
        """The broker's directory."""
        return self.broker_socket.parent


def load_nodes(path: Path) -> tuple[LocalNode, ...]:
    """Read nodes from a JSON file, a list of objects with the fields of `LocalNode`. Blocks: for start-up only.

    Raises:
        InputError: the file cannot be read, is no such list, or names a node twice.
    """
    field_name = "PLIMSOLL_LOCAL_NODES"
    try:
        nodes = msgspec.json.decode(path.read_bytes(), type=tuple[LocalNode, ...], dec_hook=_path)
    except (OSError, msgspec.MsgspecError) as error:
        remedy = 'name a file with [{"name": …, "broker_socket": …, "environment": {…}}]'
        raise InputError(field_name, os.fspath(path), f"cannot be read ({error})", remedy) from error
    if not nodes:
        raise InputError(field_name, os.fspath(path), "names no nodes", "name one, or leave the setting out")
    names = [node.name for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise InputError(field_name, name, "is named twice", "name each node once")
    return nodes


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
