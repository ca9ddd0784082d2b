"""The lists of a trace: nodes and pods, as CSV files in the form of Alibaba's cluster-trace-gpu-v2023 (openb)."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.part.errors import InputError

NODE_LIST: Final = "openb_node_list_gpu_node.csv"
"""The name of the list of nodes that is expected beside a list of pods."""

POD_COLUMNS: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
NODE_COLUMNS: Final = ("cpu_milli", "memory_mib", "gpu")
"""The columns that each list must have; `name`, `gpu_spec`, `sn` and `model` may be absent."""

MODEL_SEPARATOR: Final = "|"
MOST_GPUS: Final = 64
"""The GPUs of the largest node that makes sense; those of openb have 8."""
_NUMBER: Final = re.compile("[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node: its CPU in thousandths, memory in MiB, and its GPUs, all of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A kind of pod that a list holds, without its name, so that equal pods are equal.

    Attributes:
        cpu_milli: in thousandths.
        memory_mib: the node's memory, not the GPU's.
        gpus: the number of GPUs, 0 or more.
        gpu_milli: the share of each, in thousandths, 1 to 1000; below 1000 for one GPU only.
        models: the acceptable models; none means any.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """The GPU that it asks for, in thousandths of one."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Trace:
    """A cluster and the pods that arrive, in the order of their names."""

    name: str
    nodes: tuple[ListedNode, ...]
    pods: tuple[ListedPod, ...]

    @property
    def capacity_milli(self) -> int:
        """The GPUs of all nodes, in thousandths."""
        return sum(1000 * node.gpus for node in self.nodes)


def read_trace(pods: Path, nodes: Path | None = None) -> Trace:
    """Read a list of pods and its nodes, by default those of `NODE_LIST` beside it.

    Raises:
        InputError: a file cannot be read, or a row is malformed.
    """
    nodes = nodes or pods.parent / NODE_LIST
    listed = tuple(_node(row, where) for where, row in _rows("--nodes", nodes, NODE_COLUMNS))
    rows = _rows("TRACE", pods, POD_COLUMNS)
    found = sorted(((row.get("name", ""), _pod(row, where)) for where, row in rows), key=lambda one: one[0])
    if not any(node.gpus for node in listed):
        raise InputError("--nodes", str(nodes), "lists no node with a GPU", "give a list of nodes")
    if not any(pod.gpus for _, pod in found):
        raise InputError("TRACE", str(pods), "lists no pod with a GPU", "give a list of pods")
    return Trace(pods.stem.removeprefix("openb_pod_list_"), listed, tuple(pod for _, pod in found))


def _rows(option: str, path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin files with a mark
            table = csv.DictReader(file)
            missing = [column for column in columns if column not in (table.fieldnames or columns)]
            if missing:
                remedy = f"give a CSV file with the columns {', '.join(columns)}, separated by commas"
                raise InputError(option, str(path), f"has no column {missing[0]}", remedy)
            for line, row in enumerate(table, start=2):
                yield f"{path.name}:{line}", row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(option, str(path), f"cannot be read: {error}", "give a CSV file") from error


def _node(row: dict[str, str], where: str) -> ListedNode:
    cpu_milli, memory_mib = (_number(row, key, where) for key in ("cpu_milli", "memory_mib"))
    gpus = _gpus(row, "gpu", where)
    return ListedNode(row.get("sn") or where, cpu_milli, memory_mib, gpus, row.get("model") or "unknown")


def _pod(row: dict[str, str], where: str) -> ListedPod:
    cpu_milli, memory_mib, gpu_milli = (
        _number(row, key, where) for key in ("cpu_milli", "memory_mib", "gpu_milli")
    )
    gpus = _gpus(row, "num_gpu", where)
    if gpus and not (1 <= gpu_milli <= 1000 and (gpus == 1 or gpu_milli == 1000)):
        problem = f"is no share of {gpus} GPUs"
        raise InputError(
            f"{where}: gpu_milli", gpu_milli, problem, "give 1 to 1000, and 1000 for several GPUs"
        )
    if gpu_milli % 10:
        raise InputError(f"{where}: gpu_milli", gpu_milli, "is no whole percentage", "round it to tens")
    models = tuple(sorted(one for one in (row.get("gpu_spec") or "").split(MODEL_SEPARATOR) if one))
    return ListedPod(cpu_milli, memory_mib, gpus, gpu_milli if gpus else 0, models)


def _number(row: dict[str, str], key: str, where: str) -> int:
    text = row.get(key) or ""
    if _NUMBER.fullmatch(text) is None:
        raise InputError(
            f"{where}: {key}", text, "is not a number", "give whole numbers of 12 digits at most, 0 or more"
        )
    return int(text)


def _gpus(row: dict[str, str], key: str, where: str) -> int:
    gpus = _number(row, key, where)
    if gpus > MOST_GPUS:
        raise InputError(f"{where}: {key}", gpus, "is more than a node has", f"give at most {MOST_GPUS}")
    return gpus
