"""Writes the C header of `pages` and `datagrams`: `python -m plimsoll.broker.header > pages.h`."""

import ctypes
import sys
from typing import Final, cast

from plimsoll.broker import datagrams, pages

_C_TYPES: Final = {
    ctypes.c_uint16: "uint16_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_char: "char",
}

_DEFINED: Final = vars(pages) | vars(datagrams)

_STRUCTURES: Final = [
    one for one in _DEFINED.values() if isinstance(one, type) and issubclass(one, ctypes.Structure)
]
"""All of them, each after those that it contains, as Python wants it too."""


def _declaration(name: str, kind: type) -> str:
    if issubclass(kind, ctypes.Array):
        element = cast("type", kind._type_)
        return f"{_c_type(element)} {name}[{kind._length_}];"
    return f"{_c_type(kind)} {name};"


def c_name(structure: type[ctypes.Structure]) -> str:
    """The C type of a structure: `GpuLimit` → `plimsoll_gpu_limit`."""
    return "plimsoll_" + "".join("_" + c.lower() if c.isupper() else c for c in structure.__name__).lstrip(
        "_"
    )


def _c_type(kind: type) -> str:
    return f"struct {c_name(kind)}" if issubclass(kind, ctypes.Structure) else _C_TYPES[kind]


def _structure_lines(structure: type[ctypes.Structure]) -> list[str]:
    name = c_name(structure)
    fields: list[tuple[str, type]] = [(field[0], field[1]) for field in structure._fields_]
    lines = [f"struct {name} {{", *(f"    {_declaration(*field)}" for field in fields), "};"]
    lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(structure)}, "{name}");')
    lines += [
        f'_Static_assert(offsetof(struct {name}, {field}) == {getattr(structure, field).offset}, "{field}");'
        for field, _ in fields
    ]
    return [*lines, ""]


def _constants() -> dict[str, str]:
    return {
        f"PLIMSOLL_{name}": f'"{value}"'
        if isinstance(value, str)
        else f"{value:#x}u{'ll' * (value >> 32 > 0)}"
        for name, value in _DEFINED.items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str | int)
    }


def header() -> str:
    """The C header with every constant, structure, size and offset of `pages` and `datagrams`."""
    lines = [
        "/* Written by `python -m plimsoll.broker.header`: do not edit. `pages` and `datagrams` say more. */",
        "#ifndef PLIMSOLL_PAGES_H",
        "#define PLIMSOLL_PAGES_H",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        *(f"#define {name} {value}" for name, value in _constants().items()),
        "",
    ]
    for structure in _STRUCTURES:
        lines += _structure_lines(structure)
    return "\n".join([*lines, "#endif", ""])


if __name__ == "__main__":
    sys.stdout.write(header())
