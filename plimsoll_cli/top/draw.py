"""The lines of the screen, for its size: a head with the sums, the rows that have room, and a line for keys.

What always holds: no line is longer than the screen, each state has a sign of its own beside its colour, and a screen
that is too small for a list still shows the sums.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from plimsoll.gpu_events import HealthClass
from plimsoll.placer_api.live import LiveGpu, News
from plimsoll.quantity import GIB, format_bytes
from plimsoll_cli.columns import columns, shortened
from plimsoll_cli.gpus import node_states
from plimsoll_cli.live import LiveCluster
from plimsoll_cli.output import printable
from plimsoll_cli.pods import WAITING, PodLine, state_of, waited, waiting_lines
from plimsoll_cli.top.rows import GpuRow, Row
from plimsoll_cli.top.view import KEYS, Screen, View

HELD, PROMISED, OVER, FREE = "█", "▒", "▓", "·"
MARKS: Final = {"no process": "○", "started": "·", "loading": "▲", "loaded": "●"}
STYLES: Final = {"no process": "dim", "started": "yellow", "loading": "cyan", "loaded": "green"}
TITLES: Final = {Screen.GPUS: "GPUs", Screen.PODS: "pods", Screen.WAITING: "waiting", Screen.EVENTS: "events"}
HEAD_LINES: Final = 5
LEAST_NAME_COLUMNS, NAME_COLUMNS, MOST_NAME_COLUMNS = 13, 24, 40
"""The columns of names: that of their heading, and what they may take on a screen of 80 and on a wide one."""

POD_COLUMNS: Final = 12 + 15 + 6 + 4
"""The columns of a pod beside its name and its node, with the blanks between them."""

SPARE: Final = "cyan"
"""The colour of time beyond the promises: whoever wants it may use it, so it is no fault, unlike with memory."""

KEYS_LINE: Final = "q quit  Tab list  s sort  r reverse  / filter  space hold  ? keys"


@dataclass(frozen=True, slots=True)
class Size:
    """The screen, in characters."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Facts beside the cluster: the time for people, and the fault of the connection, or nothing."""

    clock: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Form:
    """The columns of the screen, of names, of nodes of pods, and of the bars of memory and of time."""

    width: int
    name: int
    node: int
    bar: int
    time_bar: int

    @classmethod
    def of(cls, found: Sequence[Row], width: int) -> "_Form":
        most = max(NAME_COLUMNS, min(width // 5, MOST_NAME_COLUMNS))
        name = min(most, max([LEAST_NAME_COLUMNS, *(len(_name(row)) for row in found)]))
        spare = max(0, width - name - 64)
        longest = max([4, *(len(row.node or "") for row in found if isinstance(row, PodLine))])
        node = min(longest, max(8, width - name - POD_COLUMNS))
        return cls(width, name, node, 12 + min(spare // 4, 20), 6 + min(spare // 8, 10))


def lines(cluster: LiveCluster, found: Sequence[Row], view: View, size: Size, moment: Moment) -> list[Text]:
    """All lines of the screen, `size.height` at most."""
    view.rows, view.page = len(found), max(1, size.height - HEAD_LINES - 1)
    view.fit()
    form = _Form.of(found, size.width)
    body = _help(size.width) if view.help else _body(found, view, form)
    head = _head(cluster, view, form, moment)
    room = max(0, size.height - len(head) - 1)
    body = body[:room]
    if view.screen is Screen.GPUS and not view.help:
        body += _waiting_below(cluster, room - len(body), size.width)
    shown = [*head, *body, *(Text() for _ in range(room - len(body)))]
    return [*shown[: max(0, size.height - 1)], _foot(view, size.width)]


def _head(cluster: LiveCluster, view: View, form: _Form, moment: Moment) -> list[Text]:
    width = form.width
    gpus = [gpu for _, gpu in cluster.gpus()]
    total = cluster.waiting.total if cluster.waiting is not None else 0
    pods = len({pod.pod for gpu in gpus for pod in gpu.pods})
    counts = (_count(len(cluster.nodes), "node"), _count(len(gpus), "GPU"), _count(pods, "pod"))
    title = f"{'  '.join(counts)}  {total} waiting"
    return [
        _ends(Text.assemble(("plimsoll top  ", "bold"), title), _status(cluster, moment), width),
        _memory(gpus, width),
        _time(gpus, width),
        _tabs(view, width),
        _heading(_headings(view.screen, form), width),
    ]


def _heading(text: str, width: int) -> Text:
    return Text(shortened(text, width).ljust(width), style="bold reverse")


def _status(cluster: LiveCluster, moment: Moment) -> Text:
    if moment.problem:
        return Text(f"no connection  {moment.clock}", style="bold red")
    status = cluster.status
    if status is None:
        return Text(f"connecting  {moment.clock}", style="yellow")
    if status.missing:
        return Text(f"{printable(status.missing[0])}  {moment.clock}", style="bold yellow")
    return Text(f"{'leads' if status.leads else 'follows'}  {moment.clock}")


def _waiting_below(cluster: LiveCluster, room: int, width: int) -> list[Text]:
    """The first pods that wait, where the GPUs leave room for them."""
    found = waiting_lines(cluster)
    if room < 3 or not found:
        return []
    form = _Form.of(found, width)
    heading = _heading(_headings(Screen.WAITING, form), width)
    return [Text(), heading, *(_cut(_line(pod, form), width) for pod in found[: room - 2])]


def _memory(gpus: Sequence[LiveGpu], width: int) -> Text:
    held, promised = sum(gpu.used_bytes for gpu in gpus), sum(gpu.promised_bytes for gpu in gpus)
    line = sum(gpu.line_bytes for gpu in gpus)
    text = f" {format_bytes(held)} held, {format_bytes(promised)} promised of {format_bytes(line)}"
    return _cut(Text.assemble("memory  ", _bar(held, promised, line, _head_bar(width)), text), width)


def _time(gpus: Sequence[LiveGpu], width: int) -> Text:
    measured = [gpu for gpu in gpus if not gpu.mig]
    busy = sum(100 - gpu.idle_pct for gpu in measured) / 100
    promised = sum(gpu.promised_share_pct for gpu in gpus) / 100
    text = f" {busy:.1f} GPUs busy, {promised:.1f} promised of {len(gpus)}"
    return _cut(
        Text.assemble("time    ", _bar(busy, promised, len(gpus), _head_bar(width), SPARE), text), width
    )


def _head_bar(width: int) -> int:
    return max(4, min(width - 52, 60))


def _tabs(view: View, width: int) -> Text:
    tabs = Text()
    for screen, title in TITLES.items():
        name = f"[{screen.value}] {title}"
        tabs.append(name, style="bold underline" if screen is view.screen else "dim").append("  ")
    parts = [f"by {view.sort[view.screen]}{' reversed' if view.is_reversed else ''}"]
    parts += [f"filter {view.filter!r}"] if view.filter and not view.typed else []
    parts += (
        [f"{view.offset + 1}–{min(view.offset + view.page, view.rows)} of {view.rows}"] if view.rows else []
    )
    return _ends(tabs, Text("  ".join(parts), style="dim"), width)


def _foot(view: View, width: int) -> Text:
    if view.typed:
        return _cut(Text.assemble(("filter: ", "bold"), view.filter, ("█", "blink")), width)
    if view.held:
        return _cut(Text("held: space goes on", style="bold yellow"), width)
    return Text(shortened(KEYS_LINE, width), style="dim")


def _help(width: int) -> list[Text]:
    signs = (
        *((f"{sign}", f"pod: {state}") for state, sign in MARKS.items()),
        (HELD, "memory that processes hold; time in which the GPU works"),
        (PROMISED, "memory or time that is promised beside it"),
        (OVER, "memory that is held, or time that is used, beyond the promises"),
    )
    return [Text(shortened(f"  {key:<10} {text}", width)) for key, text in (*KEYS, ("", ""), *signs)]


def _headings(screen: Screen, form: _Form) -> str:
    name = form.name
    if screen is Screen.GPUS:
        time = f"{'TIME':<{form.time_bar + 5}}"
        return f"{'NODE/GPU':<{name}} {'MEMORY':<{form.bar}} {'HELD/PROM/LINE':<16} {time} {'TASKS':<8} PODS"
    if screen is Screen.PODS:
        return f"{'NAMESPACE/POD':<{name}} {'STATE':<12} {'NODE':<{form.node}} {'HELD/PROMISED':<15} {'SHARE':<6}"
    if screen is Screen.WAITING:
        return f"{'NAMESPACE/POD':<{name}} {'FOR':<5} ASKS: REASON"
    return f"{'TIME':<8} {'EVENT':<18} {'ABOUT':<{name}} TEXT"


def _body(found: Sequence[Row], view: View, form: _Form) -> list[Text]:
    shown = found[view.offset : view.offset + view.page]
    if not shown:
        return [
            _cut(Text("  none" + (f" with {view.filter!r}" if view.filter else ""), style="dim"), form.width)
        ]
    return [_cut(_line(row, form), form.width) for row in shown]


def _line(row: Row, form: _Form) -> Text:
    name = _cell(_name(row), form.name, middle=True)
    if isinstance(row, PodLine):
        return _waiting(row, name) if row.state == WAITING else _pod(row, name, form)
    return _news(row, name) if isinstance(row, News) else _gpu(row, name, form)


def _name(row: Row) -> str:
    if isinstance(row, PodLine):
        return row.full_name
    if isinstance(row, News):
        return f"{row.namespace}/{row.name}" if row.name else row.node
    return f"{row[0].node}/{row[1].uuid if row[1].index is None else row[1].index}"


def _gpu(row: GpuRow, name: str, form: _Form) -> Text:
    node, gpu = row
    if not isinstance(gpu, LiveGpu):
        held = f"; {gpu.promised_bytes / GIB:.3g}Gi promised there" if gpu.promised_bytes else ""
        return Text.assemble((name, "red"), " ", (f"lost: {printable(gpu.reason)}{held}", "red"))
    top = max(gpu.line_bytes, gpu.usable_bytes)
    busy = 0.0 if gpu.mig else 100 - gpu.idle_pct
    sizes = "/".join(f"{size / GIB:.3g}" for size in (gpu.used_bytes, gpu.promised_bytes, gpu.line_bytes))
    ill = node.silent or node.closed or gpu.closed or gpu.health is not HealthClass.HEALTHY
    cells = (
        Text(name, "red" if ill else "bold"),
        _bar(gpu.used_bytes, gpu.promised_bytes, top, form.bar),
        Text(_cell(sizes + "Gi", 16)),
        _bar(busy, gpu.promised_share_pct, 100, form.time_bar, SPARE),
        Text(f"{gpu.promised_share_pct:>3}%"),
        _tasks(gpu),
        _pods_on(gpu, _note(row)),
    )
    return Text(" ").join(cells)


def _note(row: GpuRow) -> str:
    node, gpu = row
    assert isinstance(gpu, LiveGpu)
    notes = [*node_states(node)]
    if gpu.health is not HealthClass.HEALTHY:
        notes.append(f"{gpu.health.value}: {gpu.reason}")
    if gpu.cordoned:
        notes.append("GPU cordoned")
    elif gpu.closed and gpu.health is not HealthClass.FATAL:
        notes.append("takes no pods")
    return printable("; ".join(notes))


def _tasks(gpu: LiveGpu) -> Text:
    counts = Counter(state_of([pod]) for pod in gpu.pods)
    text = Text()
    for state, mark in MARKS.items():
        if counts[state]:
            text.append(f"{mark}{counts[state]}", style=STYLES[state])
    text.pad_right(max(0, 8 - columns(text.plain)))
    return text


def _pods_on(gpu: LiveGpu, note: str) -> Text:
    text = Text().append(f"{note}  " if note else "", style="red")
    for pod in gpu.pods:
        state = state_of([pod])
        text.append(f"{MARKS[state]} {printable(pod.name or pod.pod)}  ", style=STYLES[state])
    return text


def _pod(pod: PodLine, name: str, form: _Form) -> Text:
    return Text.assemble(
        (name, "bold"),
        " ",
        (_cell(f"{MARKS[pod.state]} {pod.state}", 12), STYLES[pod.state]),
        f" {_cell(pod.node or '', form.node, middle=True)} ",
        (
            _cell(f"{format_bytes(pod.used_bytes)}/{format_bytes(pod.promised_bytes)}", 15),
            "bold red" if pod.used_bytes > pod.promised_bytes else "",
        ),
        f" {'whole' if pod.whole else f'{pod.share_pct}%':<6} ",
        (printable(pod.text), "yellow"),
    )


def _waiting(pod: PodLine, name: str) -> Text:
    return Text.assemble(
        (name, "bold yellow"),
        f" {waited(pod.since):<5} ",
        printable(f"{pod.asks}: {pod.text or 'not tried yet'}"),
    )


def _news(news: News, name: str) -> Text:
    return Text.assemble(
        (_cell(news.time[11:19], 8), "dim"),
        f" {_cell(news.what, 18)} ",
        (name, "bold"),
        f" {printable(news.text)}",
    )


def _bar(held: float, promised: float, line: float, width: int, over_style: str = "red") -> Text:
    """Held, then what is promised beside it, then free; what is held beyond the promises has a sign of its own."""
    scale = width / line if line > 0 else 0.0
    ends = [min(width, round(value * scale)) for value in (min(held, promised), promised, held)]
    within, upto, used = ends[0], max(ends[1], ends[0]), ends[2]
    if held > 0 and used == 0:
        used = 1
        within, upto = (1, max(upto, 1)) if promised >= held else (within, upto)
    over = max(0, used - upto)
    return Text.assemble(
        (HELD * within, "green"),
        (PROMISED * (upto - within), "blue"),
        (OVER * over, over_style),
        (FREE * (width - upto - over), "dim"),
    )


def _cell(text: str, width: int, *, middle: bool = False) -> str:
    cut = shortened(printable(text), width, middle=middle)
    return cut + " " * (width - columns(cut))


def _ends(left: Text, right: Text, width: int) -> Text:
    """Two texts at the ends of a line; the left one is cut where both have no room."""
    right = _cut(right, max(0, width - 14))
    left = _cut(left, max(0, width - columns(right.plain) - 1))
    return _cut(Text.assemble(left, " " * (width - columns(left.plain) - columns(right.plain)), right), width)


def _cut(text: Text, width: int) -> Text:
    """The text in this many columns at most, as `shortened` does, with its styles."""
    if columns(text.plain) <= width:
        return text
    kept = len(shortened(text.plain, width)) - 1
    return text[:kept].append("…") if kept >= 0 else Text()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
