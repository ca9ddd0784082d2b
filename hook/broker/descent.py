"""Finds the pods of processes that use a GPU, and that neither a hello nor their own cgroup ascribes to one.

A command under `plimsoll run` has no cgroup of its own. The sources, in order, for the process and then for each of
its ancestors: it is the `plimsoll run` of a registered command; it carries a registered pod's uid in its environment;
its cgroup is a registered pod's. `plimsoll run` adopts orphans among its descendants, and so is a daemon's ancestor.

What always holds: a process keeps the pod that was found for it, also where its ancestors have ended since. A process
for which none was found is looked at again only when pods come or go: a `plimsoll run` registers before its first
descendant starts.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from plimsoll.broker.environment import POD_VARIABLE
from plimsoll.ids import PodUid, ProcessKey
from plimsoll.kube.cgroup import read_pod
from plimsoll.part.processes import PROC, read_stat

GENERATIONS_MAX: Final = 256
"""Ancestors that are looked at: far more than real programs have."""

_VARIABLE: Final = f"{POD_VARIABLE}=".encode()


class Descent:
    """Remembers the pods of living processes. Everything here blocks, briefly."""

    def __init__(self) -> None:
        self._known: dict[ProcessKey, PodUid | None] = {}
        self._pods: frozenset[PodUid] = frozenset()

    def pods_of(
        self,
        strays: Collection[ProcessKey],
        runners: Mapping[ProcessKey, PodUid],
        pods: Collection[PodUid],
    ) -> dict[ProcessKey, PodUid]:
        """The pods of these processes, less those of no pod. Every other process is forgotten.

        Args:
            strays: any processes.
            runners: each process whose descendants belong to a pod.
            pods: the registered pods.
        """
        if self._pods != frozenset(pods):
            self._pods = frozenset(pods)
            self._known = {key: pod for key, pod in self._known.items() if pod in self._pods}
        self._known = {
            key: self._known[key] if key in self._known else _pod_of(key, runners, self._pods)
            for key in strays
        }
        return {key: pod for key, pod in self._known.items() if pod is not None}


def _pod_of(key: ProcessKey, runners: Mapping[ProcessKey, PodUid], pods: Collection[PodUid]) -> PodUid | None:
    for each in _lineage(key):
        for pod in (runners.get(each), _named_by(each.pid), read_pod(each.pid)):
            if pod in pods:
                return pod
    return None


def _lineage(key: ProcessKey) -> Iterator[ProcessKey]:
    """A process and its ancestors, the nearest first."""
    pid = key.pid
    for _ in range(GENERATIONS_MAX):
        try:
            stat = read_stat(pid)
        except PermissionError:  # /proc is mounted with hidepid
            return
        if stat is None or (pid == key.pid and stat.start_ticks != key.start_ticks):
            return
        yield ProcessKey(pid, stat.start_ticks)
        if stat.parent <= 1:
            return
        pid = stat.parent


def _named_by(pid: int) -> PodUid | None:
    """The pod that a process's environment names; None where it names none, or is another user's."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    found = [one for one in environment.split(b"\0") if one.startswith(_VARIABLE)]
    return PodUid(found[0].removeprefix(_VARIABLE).decode(errors="replace")) if found else None
