"""Writes for C the exported function that a name means, by CUDA version and kind of default stream.

`cuGetProcAddress` chooses among the variants of a function (`cuMemAlloc`, `cuMemAlloc_v2`; `_ptds`, `_ptsz`). If
a driver answers with an address that it exports under no name, the library chooses as the driver does, by this table.
NVIDIA gives each variant's type a name with the first version that means the variant, `PFN_cuMemAlloc_v3020`, and
numbers the symbols in the same order. The build fails if a name has more versions than symbols, or fewer.

    python -m hook.lib.variants OUTPUT.h INCLUDE_FOLDER…

`OUTPUT.h` gets a row `{name, version, is_per_thread, symbol}` for each variant of every name that has a hook, oldest
first, and the newest CUDA version that the headers know.
"""

import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

from hook.lib.classify import classified_in, declared_in

HERE: Final = Path(__file__).parent
_TYPE: Final = re.compile(r"\*PFN_(cu[A-Z]\w*?)_v(\d+)(_ptds|_ptsz)?\)")
_NEWEST: Final = re.compile(r"#define CUDA_VERSION (\d+)")


class Variant(NamedTuple):
    """A function that a name may mean.

    Attributes:
        version: the CUDA version from which the name means it.
        suffix: `_ptds` or `_ptsz` where each thread has a default stream of its own, else empty.
    """

    name: str
    suffix: str
    version: int
    symbol: str

    @property
    def row(self) -> str:
        """The variant in C."""
        return f'{{"{self.name}", {self.version}, {str(bool(self.suffix)).lower()}, "{self.symbol}"}},'


def _symbols(name: str, suffix: str, declared: set[str]) -> list[str]:
    """The exported functions of one name and suffix, oldest first."""
    later = sorted(
        (int(number), symbol)
        for symbol in declared
        for number in re.findall(rf"^{name}_v(\d+){suffix}$", symbol)
    )
    return [symbol for symbol in (name + suffix, *(symbol for _, symbol in later)) if symbol in declared]


def variants_in(includes: list[Path]) -> list[Variant]:
    """Every variant of every function whose type these folders of NVIDIA's headers give.

    Raises:
        ValueError: some name has more versions than symbols, or fewer.
    """
    declared = set().union(*(declared_in(include) for include in includes))
    versions: dict[tuple[str, str], set[int]] = {}
    for include in includes:
        for name, version, suffix in _TYPE.findall((include / "cudaTypedefs.h").read_text(encoding="utf-8")):
            versions.setdefault((name, suffix), set()).add(int(version))
    found = []
    for (name, suffix), given in sorted(versions.items()):
        symbols = _symbols(name, suffix, declared)
        if len(symbols) != len(given):
            raise ValueError(f"{name}{suffix}: versions {sorted(given)} do not match {symbols}")
        pairs = zip(sorted(given), symbols, strict=True)
        found += [Variant(name, suffix, version, symbol) for version, symbol in pairs]
    return found


def main(output: Path, includes: list[Path]) -> None:
    """Write the rows for all names that have a hook."""
    hooks = classified_in((HERE / "hooks.h").read_text(encoding="utf-8"), "").keys()
    variants = variants_in(includes)
    hooked = {variant.name for variant in variants if variant.symbol in hooks}
    rows = "".join(f"    {variant.row}\n" for variant in variants if variant.name in hooked)
    newest = max(
        int(number)
        for include in includes
        for number in _NEWEST.findall((include / "cuda.h").read_text(encoding="utf-8"))
    )
    text = (
        "/* Made by variants.py: the variants behind each name that has a hook. */\n"
        f"#define NEWEST_KNOWN {newest}\n#define VARIANTS \\\n"
    )
    output.write_text(text + rows.rstrip("\n").replace("\n", " \\\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
