"""The rows of a list: those that the filter lets through, in the chosen order."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from plimsoll.placer_api.live import LiveGpu, LiveNode, LostGpu, News
from plimsoll_cli.live import LiveCluster
from plimsoll_cli.pods import WAITING, PodLine, lines_of, waiting_lines
from plimsoll_cli.top.view import BY_NAME, Screen, View

GpuRow = tuple[LiveNode, LiveGpu | LostGpu]
Row = GpuRow | PodLine | News
Key = tuple[object, ...]

_DIGITS: Final = re.compile(r"(\d+)")


def rows(cluster: LiveCluster, view: View) -> list[Row]:
    """The rows of the list that the user sees."""
    sort = view.sort[view.screen]
    wanted = view.filter.casefold()
    descends = (sort not in BY_NAME) != view.is_reversed
    match view.screen:
        case Screen.GPUS:
            return _sorted(_gpus(cluster, wanted), lambda row: _gpu_key(row, sort), descends)
        case Screen.PODS:
            pods = [
                pod
                for pod in lines_of(cluster)
                if pod.state != WAITING and _has(wanted, pod.full_name, pod.node)
            ]
            return _sorted(pods, lambda pod: _pod_key(pod, sort), descends)
        case Screen.WAITING:
            found = [pod for pod in waiting_lines(cluster) if _has(wanted, pod.full_name, pod.text)]
            return [*(reversed(found) if descends else found)]
        case Screen.EVENTS:
            news = [
                one
                for one in reversed(cluster.news)
                if _has(wanted, one.what, one.node, one.namespace, one.name)
            ]
            return [*(reversed(news) if descends else news)]


def _sorted(found: Iterable[Row], key: Callable[[Row], Key], descends: bool) -> list[Row]:  # noqa: FBT001 - of this module
    return sorted(found, key=key, reverse=descends)


def _gpus(cluster: LiveCluster, wanted: str) -> list[Row]:
    found: list[Row] = []
    for node in cluster.nodes.values():
        gpus: tuple[LiveGpu | LostGpu, ...] = (*node.gpus, *node.lost)
        for gpu in gpus:
            names = (f"{pod.namespace}/{pod.name}" for pod in gpu.pods)
            if not wanted or _has(wanted, node.node, gpu.model, *names):
                found.append((node, gpu))
    return found


def _has(wanted: str, *texts: str | None) -> bool:
    return not wanted or any(wanted in text.casefold() for text in texts if text)


def _gpu_key(row: Row, sort: str) -> Key:
    assert isinstance(row, tuple)
    node, gpu = row
    name = (natural(node.node), -1 if gpu.index is None else gpu.index)
    if sort == "name":
        return name
    if isinstance(gpu, LostGpu):
        return (-1.0, name)
    values = {
        "used": gpu.used_bytes,
        "promised": gpu.promised_bytes,
        "free": gpu.free_bytes,
        "share": gpu.promised_share_pct,
        "idle": gpu.idle_pct,
    }
    return (values[sort], name)


def _pod_key(pod: Row, sort: str) -> Key:
    assert isinstance(pod, PodLine)
    name = natural(pod.full_name)
    values: dict[str, object] = {
        "name": (),
        "state": pod.state,
        "node": natural(pod.node or ""),
        "used": pod.used_bytes,
        "promised": pod.promised_bytes,
        "share": pod.share_pct,
    }
    return (values[sort], name)


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A key by which `node-9` comes before `node-10`."""
    parts = _DIGITS.split(name)
    return tuple((text, int(number)) for text, number in zip(parts[::2], [*parts[1::2], "-1"], strict=True))
