"""The symbols that a shared library asks for and offers, read from the file itself: no binutils needed.

Only what the loader looks at: the dynamic section and the tables it leads to. 64-bit, little-endian.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PT_LOAD: Final = 1
_PT_DYNAMIC: Final = 2
_PT_GNU_STACK: Final = 0x6474E551
_PT_GNU_RELRO: Final = 0x6474E552
_PF_X: Final = 1
_DT_NEEDED: Final = 1
_DT_PLTRELSZ: Final = 2
_DT_STRTAB: Final = 5
_DT_SYMTAB: Final = 6
_DT_RELA: Final = 7
_DT_RELASZ: Final = 8
_DT_INIT: Final = 12
_DT_JMPREL: Final = 23
_DT_INIT_ARRAY_SIZE: Final = 27
_DT_FLAGS: Final = 30
_DF_BIND_NOW: Final = 8
_DT_VERNEED: Final = 0x6FFFFFFE
_SHT_DYNSYM: Final = 11


@dataclass(frozen=True, slots=True)
class Library:
    """One shared library."""

    needed: frozenset[str]
    """The libraries that it makes the loader load."""

    versions: frozenset[str]
    """The symbol versions that it asks of them, such as `GLIBC_2.2.5`."""

    defined: frozenset[str]
    """The names that it exports."""

    bound: frozenset[str]
    """The names that the loader looks up for it, in whatever library has them first."""

    constructors: int
    """The number of its functions that run when it is loaded."""

    is_bound_at_load: bool
    """Whether the loader looks up all of its functions at once (BIND_NOW)."""

    has_read_only_tables: bool
    """Whether the loader then makes the tables of functions read-only (RELRO)."""

    has_executable_stack: bool
    """Whether it makes the stack executable."""

    @property
    def newest_glibc(self) -> tuple[int, ...]:
        """The oldest glibc that can load it."""
        glibc = (name.removeprefix("GLIBC_") for name in self.versions if name.startswith("GLIBC_"))
        return max(tuple(int(part) for part in version.split(".")) for version in glibc)


def read_library(path: Path) -> Library:
    """Read one library.

    Raises:
        AssertionError: the file is no 64-bit little-endian ELF file.
    """
    file = path.read_bytes()
    assert file[:6] == b"\x7fELF\x02\x01", f"{path} is no 64-bit little-endian ELF file"
    dynamic = _dynamic(file)
    tags = dict(dynamic)
    names = _offset(file, tags[_DT_STRTAB])
    kinds = _segment_flags(file)
    symbols = _symbols(file, names, _offset(file, tags[_DT_SYMTAB]))
    return Library(
        needed=frozenset(_text(file, names + value) for tag, value in dynamic if tag == _DT_NEEDED),
        versions=_versions(file, names, tags),
        defined=frozenset(name for name, section in symbols if section),
        bound=frozenset(symbols[place][0] for place in _relocated(file, tags)) - {""},
        is_bound_at_load=bool(tags.get(_DT_FLAGS, 0) & _DF_BIND_NOW),
        has_read_only_tables=_PT_GNU_RELRO in kinds,
        has_executable_stack=kinds.get(_PT_GNU_STACK, _PF_X) & _PF_X != 0,
        constructors=(_DT_INIT in tags) + tags.get(_DT_INIT_ARRAY_SIZE, 0) // 8,
    )


def _text(file: bytes, at: int) -> str:
    return file[at : file.index(b"\0", at)].decode()


def _segments(file: bytes) -> list[tuple[int, int, int, int]]:
    """Type, offset, address and size in the file of each segment."""
    (start,) = struct.unpack_from("<Q", file, 32)
    size, count = struct.unpack_from("<HH", file, 54)
    segments = []
    for place in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", file, start + place * size)
        segments.append((kind, offset, address, length))
    return segments


def _segment_flags(file: bytes) -> dict[int, int]:
    """The flags of the last segment of each type."""
    (start,) = struct.unpack_from("<Q", file, 32)
    size, count = struct.unpack_from("<HH", file, 54)
    return dict(struct.unpack_from("<II", file, start + place * size) for place in range(count))


def _offset(file: bytes, address: int) -> int:
    """Where in the file lies what the loader puts at an address."""
    return next(
        address - start + offset
        for kind, offset, start, length in _segments(file)
        if kind == _PT_LOAD and start <= address < start + length
    )


def _dynamic(file: bytes) -> list[tuple[int, int]]:
    start, length = next(
        (offset, length) for kind, offset, _, length in _segments(file) if kind == _PT_DYNAMIC
    )
    return list(struct.iter_unpack("<QQ", file[start : start + length]))


def _versions(file: bytes, names: int, tags: dict[int, int]) -> frozenset[str]:
    found, at = set(), _offset(file, tags[_DT_VERNEED])
    while True:
        _, count, _, first, next_library = struct.unpack_from("<HHIII", file, at)
        version = at + first
        for _ in range(count):
            _, _, _, name, next_version = struct.unpack_from("<IHHII", file, version)
            found.add(_text(file, names + name))
            version += next_version
        if not next_library:
            return frozenset(found)
        at += next_library


def _symbol_count(file: bytes) -> int:
    """The dynamic section does not say how many symbols there are; the section headers do."""
    (start,) = struct.unpack_from("<Q", file, 40)
    size, count = struct.unpack_from("<HH", file, 58)
    for place in range(count):
        kind, _, _, _, length = struct.unpack_from("<IQQQQ", file, start + place * size + 4)
        if kind == _SHT_DYNSYM:
            return int(length) // 24
    raise AssertionError("no dynamic symbols")


def _symbols(file: bytes, names: int, table: int) -> list[tuple[str, int]]:
    """Name and section of each; section 0 means that another library has it."""
    entries = (struct.unpack_from("<IBBH", file, table + n * 24) for n in range(_symbol_count(file)))
    return [(_text(file, names + name), section) for name, _, _, section in entries]


def _relocated(file: bytes, tags: dict[int, int]) -> set[int]:
    """The places in the symbol table that relocations refer to; 0 for none."""
    found = set()
    for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if table in tags:
            start = _offset(file, tags[table])
            entries = struct.iter_unpack("<QQq", file[start : start + tags[size]])
            found |= {about >> 32 for _, about, _ in entries}
    return found
