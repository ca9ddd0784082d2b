"""The screen of `plimsoll top` for any cluster, size and keys; and the copy of the cluster that it shows."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.placer_api.live import LiveGpu, LiveNode, News, Sharer, Status, WaitingPod, WaitingPods
from plimsoll.quantity import GIB
from plimsoll_cli.columns import columns
from plimsoll_cli.live import LiveCluster, StreamError
from plimsoll_cli.top.draw import Moment, Size, lines
from plimsoll_cli.top.keys import keys_in
from plimsoll_cli.top.rows import natural, rows
from plimsoll_cli.top.view import Screen, View
from tests.slow import examples

NOW = "2026-01-01T00:00:00Z"
NAMES = st.text(max_size=70)
BYTES = st.integers(0, 200 * GIB)
KEYS = st.sampled_from(
    [*"gpwesr/ ?hjkx", "tab", "up", "down", "pageup", "pagedown", "home", "end", "escape", "enter"]
)


def sharer(name: str = "pod", expected_bytes: int = GIB, used_bytes: int = 0) -> Sharer:
    """A pod on one GPU."""
    return Sharer(
        pod=PodUid(name),
        namespace="team",
        name=name,
        expected_bytes=expected_bytes,
        used_bytes=used_bytes,
        declared=True,
        share_pct=10,
        limit_pct=100,
    )


def gpu(index: int = 0, used_bytes: int = 0, promised_bytes: int = 0, *pods: Sharer) -> LiveGpu:
    """A GPU of 24 GiB."""
    return LiveGpu(
        uuid=GpuUuid(f"GPU-{index}"),
        index=index,
        model="NVIDIA L4",
        usable_bytes=24 * GIB,
        line_bytes=24 * GIB,
        used_bytes=used_bytes,
        promised_bytes=promised_bytes,
        promised_share_pct=30,
        other_bytes=0,
        free_bytes=24 * GIB - promised_bytes,
        idle_pct=50.0,
        pods=pods,
    )


def node(name: str, *gpus: LiveGpu) -> LiveNode:
    """A node that reports."""
    return LiveNode(node=NodeName(name), time=NOW, silent=False, gpus=gpus)


def cluster(*nodes: LiveNode, waiting: int = 0) -> LiveCluster:
    """A copy of these nodes."""
    pods = tuple(
        WaitingPod(pod=PodUid(f"w{i}"), namespace="team", name=f"w{i}", reason="no room")
        for i in range(waiting)
    )
    made = LiveCluster(waiting=WaitingPods(total=waiting, pods=pods))
    made.nodes = {one.node: one for one in nodes}
    return made


def drawn(shown: LiveCluster, view: View, width: int = 80, height: int = 24) -> list[str]:
    """The lines of the screen."""
    size = Size(width, height)
    return [line.plain for line in lines(shown, rows(shown, view), view, size, Moment("00:00:00", "away"))]


@settings(max_examples=examples(50))
@given(
    st.lists(st.tuples(NAMES, BYTES, BYTES, NAMES), max_size=6),
    st.integers(1, 250),
    st.integers(1, 60),
    st.lists(KEYS, max_size=12),
)
def test_every_screen_fits_its_terminal(
    nodes: list[tuple[str, int, int, str]], width: int, height: int, keys: list[str]
) -> None:
    """Whatever the names, figures, size and keys: as many lines as the screen has, and none is wider or a command."""
    shown = cluster(
        *(
            node(name, gpu(0, used, promised, sharer(pod, promised, used)))
            for name, used, promised, pod in nodes
        ),
        waiting=3,
    )
    shown.news.append(News(id="1", time=NOW, what="limit.denied", text="\x1b[2J", name="p", namespace="n"))
    view = View()
    for key in keys:
        drawn(shown, view, width, height)
        view.press(key)
    text = drawn(shown, view, width, height)
    assert len(text) == height
    assert all(columns(line) <= width and line.isprintable() for line in text)


def test_lists_are_sorted_by_numbers_and_by_figures() -> None:
    """`node-9` comes before `node-10`; the GPU with most use comes first, and with `r` last."""
    shown = cluster(
        node("node-10", gpu(0, 3 * GIB, GIB)), node("node-9", gpu(0, GIB, 9 * GIB), gpu(1, 2 * GIB, 0))
    )
    view = View()

    def order() -> list[str]:
        return [line.split()[0] for line in drawn(shown, view)[5:8]]

    assert order() == ["node-9/0", "node-9/1", "node-10/0"]
    view.press("s")
    assert order() == ["node-10/0", "node-9/1", "node-9/0"]
    view.press("r")
    assert order() == ["node-9/0", "node-9/1", "node-10/0"]
    assert natural("a1b") < natural("a2") < natural("a10") < natural("b")


def test_a_page_ends_with_the_last_row() -> None:
    """Keys scroll a thousand rows by pages and to both ends, and never past them."""
    shown, view = cluster(*(node(f"n{i}", gpu()) for i in range(1000))), View()

    def first() -> str:
        return drawn(shown, view)[5].split()[0]

    assert first() == "n0/0"
    for key, expected in (
        ("pagedown", "n18/0"),
        ("j", "n19/0"),
        ("end", "n982/0"),
        ("down", "n982/0"),
        ("home", "n0/0"),
        ("k", "n0/0"),
    ):
        view.press(key)
        assert first() == expected, key


def test_a_filter_is_typed_kept_and_ended() -> None:
    """While it is typed, letters are no commands; it searches names of nodes, models and pods in any case."""
    shown, view = cluster(node("a", gpu(0, 0, 0, sharer("Quit"))), node("b", gpu())), View()
    for key in ("/", *"qUX", "backspace", "enter"):
        view.press(key)
    assert (view.filter, view.has_quit) == ("qU", False)
    assert [line.split()[0] for line in drawn(shown, view)[5:7] if line] == ["a/0"]
    view.press("escape")
    view.press("q")
    assert (view.filter, view.has_quit) == ("", True)


def test_bars_have_a_sign_for_each_part() -> None:
    """Held, promised beside it, held beyond the promises, free: each has its own sign and its share of the bar."""
    shown = cluster(node("n", gpu(0, 6 * GIB, 12 * GIB), gpu(1, 12 * GIB, 6 * GIB), gpu(2, 1, GIB)))
    first, over, tiny = (line.split()[1] for line in drawn(shown, View())[5:8])
    width = len(first)
    assert (first.count("█"), first.count("▒")) == (width // 4, width // 2 - width // 4)
    assert (over.count("█"), over.count("▓")) == (width // 4, width // 2 - width // 4)
    assert tiny.startswith("█")


def test_keys_are_read_from_what_terminals_send() -> None:
    """Arrows in both modes, Esc alone, several keys at once; a mouse's sequence is no key."""
    assert list(keys_in("\x1b[A\x1bOBj\x1b[5~\x1b[<0;1;1Mq\x03")) == [
        "up",
        "down",
        "j",
        "pageup",
        "q",
        "quit",
    ]
    assert list(keys_in("\x1b")) == ["escape"]
    assert list(keys_in("模\t")) == ["模", "tab"]


def encoded(value: object) -> bytes:
    """A message's data."""
    return msgspec.json.encode(value)


def test_the_copy_is_whole_once_all_was_sent_and_forgets_what_a_new_stream_lacks() -> None:
    """Nodes that went while the stream was away are gone after the next one's start; events are kept once."""
    copy = LiveCluster()
    news = encoded([News(id="1", time=NOW, what="gpu.health")])
    for stream in (["a", "b"], ["b", "c"]):
        copy.connect()
        assert not copy.is_complete
        copy.apply("status", encoded(Status(version="1", leads=True)))
        copy.apply("nodes", encoded([node(name) for name in stream]))
        copy.apply("synced", b"null")
        copy.apply("news", news)
        assert not copy.is_complete
        copy.apply("waiting", encoded(WaitingPods()))
        assert (copy.is_complete, sorted(copy.nodes), len(copy.news)) == (True, stream, 1)
    copy.apply("gone", encoded(["b"]))
    copy.apply("a kind of a later version", b"{}")
    assert list(copy.nodes) == ["c"]
    with pytest.raises(StreamError, match="none of this version"):
        copy.apply("nodes", b'[{"node": 1}]')


def test_waiting_pods_are_counted_and_listed() -> None:
    """The head counts all, the list has each with its reason."""
    shown, view = cluster(waiting=2), View(screen=Screen.WAITING)
    text = drawn(shown, view)
    assert "2 waiting" in text[0]
    assert [line.split()[0] for line in text[5:7]] == ["team/w0", "team/w1"]
    assert text[5].endswith("no room")
