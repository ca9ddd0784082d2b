"""Classes of protobuf messages, built from tables of their fields: without generated code, and without `protoc`."""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

STRING: Final = "string"
BOOLEAN: Final = "boolean"
INT32: Final = "int32"
MAP: Final = "map of strings to strings"
REPEATED: Final = "*"
"""Before a type: the field is a list of these."""
STRINGS: Final = REPEATED + STRING

Fields = Mapping[str, tuple[int, str]]
"""The fields of a message: the name, its number, and its type, which may be the name of another message."""

_PLAIN: Final = {
    STRING: FieldDescriptorProto.TYPE_STRING,
    BOOLEAN: FieldDescriptorProto.TYPE_BOOL,
    INT32: FieldDescriptorProto.TYPE_INT32,
}


def build_messages(package: str, messages: Mapping[str, Fields]) -> dict[str, Any]:
    """The message classes of a package (proto3), by their names.

    Args:
        package: its name, which is a part of the messages' full names.
        messages: the fields of each message. protobuf skips fields on the wire that are not named here.
    """
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            _add_field(message, field_name, number, kind, package)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(message: DescriptorProto, name: str, number: int, kind: str, package: str) -> None:
    is_repeated = kind == MAP or kind.startswith(REPEATED)
    label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    single = kind.removeprefix(REPEATED)
    if single == MAP:  # on the wire a map is a list of pairs
        pair = message.nested_type.add(name="".join(word.title() for word in name.split("_")) + "Entry")
        pair.options.map_entry = True
        _add_field(pair, "key", 1, STRING, package)
        _add_field(pair, "value", 2, STRING, package)
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{pair.name}"
    elif single in _PLAIN:
        field.type = _PLAIN[single]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{single}"
