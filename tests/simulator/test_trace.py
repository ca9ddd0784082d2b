"""Replays of traces: what always holds, and the command on a slice of the real trace."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.policy_context import Request
from plimsoll.ids import NodeName, PodUid
from simulator.command import main
from simulator.trace.arrivals import draw
from simulator.trace.cluster import TraceCluster
from simulator.trace.experiment import OFFERED, policy_for
from simulator.trace.lists import NODE_LIST, ListedNode, ListedPod, Trace, read_trace
from simulator.trace.replay import demand_of, replay, workload_of
from tests.slow import examples

REAL = next(
    (
        found
        for above in Path(__file__).parents
        if (found := above / "shared/traces/openb_pod_list_default.csv").exists()
    ),
    None,
)

nodes = st.lists(
    st.builds(
        ListedNode,
        st.just("n"),
        st.sampled_from([4000, 16_000]),
        st.sampled_from([8, 64]),
        st.integers(1, 3),
        st.sampled_from(["T4", "G2"]),
    ),
    min_size=1,
    max_size=4,
)
pods = st.lists(
    st.builds(
        lambda cpu_milli, memory_mib, gpus, models: ListedPod(
            cpu_milli, memory_mib, gpus[0], gpus[1], models if gpus[0] else ()
        ),
        st.sampled_from([1000, 3000, 6000]),
        st.sampled_from([1, 5]),
        st.sampled_from([(0, 0), (1, 300), (1, 450), (1, 800), (1, 1000), (2, 1000)]),
        st.sampled_from([(), ("T4",), ("G2", "T4")]),
    ),
    min_size=1,
    max_size=10,
)


def cluster_of(
    listed: list[ListedNode], arriving: list[ListedPod]
) -> tuple[TraceCluster, tuple[ListedNode, ...]]:
    """An empty cluster for these pods."""
    named = tuple(replace(node, name=f"n{number}") for number, node in enumerate(listed))
    return TraceCluster.of(named, workload_of(Trace("t", named, tuple(arriving)))), named


@pytest.mark.parametrize("policy", OFFERED)
@settings(max_examples=examples(20), deadline=None)
@given(listed=nodes, arriving=pods)
def test_nothing_is_oversubscribed(policy: str, listed: list[ListedNode], arriving: list[ListedPod]) -> None:
    """No GPU is shared past 1000, no node's CPU or memory is overdrawn, and each pod gets GPUs of its models."""
    cluster, named = cluster_of(listed, arriving)
    chosen = policy_for(policy, 1)
    of_node = {NodeName(node.name): node for node in named}
    taken: dict[str, int] = {}
    for number, pod in enumerate(arriving):
        request = Request(PodUid(f"p{number}"), demand_of(pod), cpu_milli=pod.cpu_milli)
        plan = cluster.place(request, pod.memory_mib, chosen)
        if plan is None:
            continue
        node = plan.booking.node
        assert not pod.models or of_node[node].model in pod.models
        assert (cluster.ledger.spare_cpu.on(node) or 0) >= 0
        assert cluster.free_mib[node] >= 0
        assert len({grant.gpu for grant in plan.booking.grants}) == pod.gpus
        for grant in plan.booking.grants:
            assert grant.gpu.startswith(f"{node}/")
            taken[grant.gpu] = taken.get(grant.gpu, 0) + pod.gpu_milli
    assert all(milli <= 1000 for milli in taken.values())


@pytest.mark.parametrize("policy", OFFERED)
@settings(max_examples=examples(40), deadline=None)
@given(listed=nodes, arriving=pods, grown=st.integers(0, 4))
def test_added_gpu_makes_no_pod_unplaceable(
    policy: str, listed: list[ListedNode], arriving: list[ListedPod], grown: int
) -> None:
    """A pod that has a place still has one when a node has a GPU more, or another node with a GPU is there."""
    chosen = policy_for(policy, 1)
    cluster, _ = cluster_of(listed, arriving)
    for number, pod in enumerate(arriving):
        request = Request(PodUid(f"p{number}"), demand_of(pod), cpu_milli=pod.cpu_milli)
        larger, _ = cluster_of(with_a_gpu_more(listed, grown), arriving)
        for booking in cluster.ledger.bookings():
            larger.ledger.book(booking)
        for node, free_mib in cluster.free_mib.items():
            larger.free_mib[node] = free_mib
            larger.ledger.spare_cpu.note(node, cluster.ledger.spare_cpu.on(node))
        if cluster.place(request, pod.memory_mib, chosen) is not None:
            assert larger.place(request, pod.memory_mib, chosen) is not None


def with_a_gpu_more(listed: list[ListedNode], grown: int) -> list[ListedNode]:
    """The nodes with a GPU more: on one of them, counted round, or on a node of its own."""
    grown %= len(listed) + 1
    if grown == len(listed):
        return [*listed, ListedNode("more", 4000, 8, 1, "T4")]
    return [replace(node, gpus=node.gpus + (number == grown)) for number, node in enumerate(listed)]


@pytest.mark.parametrize("policy", OFFERED)
def test_seed_decides_everything(policy: str) -> None:
    """The same trace, policy and seed give the same places; another seed gives another draw."""
    listed = tuple(ListedNode(f"n{n}", 16_000, 64, 2, "T4") for n in range(6))
    trace = Trace("t", listed, tuple(ListedPod(1000, 1, 1, milli) for milli in (300, 450, 650, 1000) * 5))
    first, again = (replay(trace, policy_for(policy, 7), 7) for _ in range(2))
    assert (first.points, first.failed) == (again.points, again.failed)
    assert draw(trace, 7) == draw(trace, 7) != draw(trace, 8)


def write(path: Path, header: str, rows: list[str]) -> Path:
    """Write a list."""
    path.write_text("\n".join([header, *rows, ""]))
    return path


POD_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"


def test_command_writes_table_csv_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command reads the nodes beside the pods, shows a row for each policy, and writes both files."""
    write(tmp_path / NODE_LIST, "sn,cpu_milli,memory_mib,gpu,model", ["a,8000,64,2,T4", "b,8000,64,2,G2"])
    trace = write(
        tmp_path / "tiny.csv", POD_HEADER, ["p1,1000,1,1,500,", "p2,1000,1,1,1000,T4|G2", "p3,500,1,0,0,"]
    )
    points, picture = tmp_path / "points.csv", tmp_path / "picture.svg"
    words = ["trace", str(trace), "--policy", "plimsoll", "--policy", "random", "--seeds", "1..2"]
    assert main([*words, "--csv", str(points), "--svg", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert "plimsoll" in shown
    assert "random" in shown
    rows = list(csv.DictReader(points.read_text().splitlines()))
    assert {(row["policy"], row["seed"]) for row in rows} == {
        (p, s) for p in ("plimsoll", "random") for s in "12"
    }
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("row", "words", "message"),
    [
        ("p,1000,1,2,500,", [], "is no share of 2 GPUs"),
        ("p,1000,1,1,505,", [], "is no whole percentage"),
        ("p,much,1,1,500,", [], "is not a number"),
        (f"p,{'9' * 400},1,1,500,", [], "give whole numbers of 12 digits at most"),
        ("p,1000,1,\N{FULLWIDTH DIGIT ONE},500,", [], "is not a number"),
        ("p,1000,1,999999999999,1000,", [], "is more than a node has"),
        ("p,1000,1,1,500,", ["--seeds", "5..2"], "is no range of seeds"),
        ("p,1000,1,1,500,", ["--seeds", "42.."], "is no range of seeds"),
        ("p,1000,1,1,500,", ["--seeds", "0..999999999999"], "has more than 1000 seeds"),
        ("p,1000,1,1,500,", ["--policy", "fastest"], "is no placement policy"),
        ("p,1000,1,1,500,", ["--nodes", "/nowhere"], "cannot be read"),
        ("p,1000,1,1,500,", ["--csv", "/nowhere/points.csv"], "is no folder; make it"),
        ("p,1000,1,1,500,", ["--svg", "/"], "is a folder; name a file"),
    ],
)
def test_bad_input_is_refused(
    row: str, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list or an option that cannot work is refused with field, value and remedy."""
    write(tmp_path / NODE_LIST, "sn,cpu_milli,memory_mib,gpu,model", ["a,8000,64,2,T4"])
    trace = write(tmp_path / "tiny.csv", POD_HEADER, [row])
    assert main(["trace", str(trace), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_short_replay_shows_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Percentages that the replay never reached have no column."""
    write(tmp_path / NODE_LIST, "sn,cpu_milli,memory_mib,gpu,model", ["a,8000,64,2,T4"])
    trace = write(tmp_path / "tiny.csv", POD_HEADER, ["p,1000,1,1,500,"])
    assert main(["trace", str(trace), "--policy", "random", "--seeds", "1", "--arrived", "50"]) == 0
    shown = capsys.readouterr().out
    assert "@50 %" in shown
    assert not any(word in shown for word in ("@95 %", "nan"))


def test_large_pods_of_a_small_cluster_leap_over_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every seed counts at every percentage, also where one pod more asks for half of the cluster."""
    write(tmp_path / NODE_LIST, "sn,cpu_milli,memory_mib,gpu,model", ["a,8000,64,2,T4"])
    trace = write(tmp_path / "tiny.csv", POD_HEADER, ["p,1000,1,1,900,"])
    assert main(["trace", str(trace), "--policy", "random", "--seeds", "1..3"]) == 0
    shown = capsys.readouterr().out
    assert "nan" not in shown
    assert shown.count("10.00 ± 0.00") == 3


def test_a_list_with_options_before_it_or_another_ending_is_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plimsoll simulate` takes them, and lists that begin with a byte order mark, as spreadsheets write them."""
    nodes = write(tmp_path / "nodes", "\ufeffsn,cpu_milli,memory_mib,gpu,model", ["a,8000,64,2,T4"])
    trace = write(tmp_path / "tiny.trace", f"\ufeff{POD_HEADER}", ["p,1000,1,1,500,"])
    assert main([str(trace), "--nodes", str(nodes), "--policy", "random", "--seeds", "1"]) == 0
    assert main(["--policy=random", "--seeds=1", f"--nodes={nodes}", str(trace)]) == 0
    assert capsys.readouterr().out.count("│ random") == 2


def test_a_missing_column_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list with another separator, or of another form, is refused by its first line."""
    nodes = write(tmp_path / NODE_LIST, "sn,cpu_milli,memory_mib,gpu,model", ["a,8000,64,2,T4"])
    trace = write(tmp_path / "tiny.csv", POD_HEADER.replace(",", ";"), ["p;1000;1;1;500;"])
    assert main([str(trace)]) == 2
    refusal = f"TRACE: '{trace}' has no column cpu_milli; give a CSV file with the columns"
    assert refusal in capsys.readouterr().err
    assert main([str(trace), "--nodes", str(trace)]) == 2
    assert f"--nodes: '{trace}' has no column" in capsys.readouterr().err
    assert nodes.exists()


@pytest.mark.skipif(REAL is None, reason="the openb traces are not beside this project")
def test_real_trace_loses_less_by_fragmentation_than_by_chance() -> None:
    """On a tenth of the real cluster and its pods, FGD leaves fewer GPUs unallocated than places at random."""
    assert REAL is not None
    whole = read_trace(REAL)
    tenth = Trace("slice", whole.nodes[::10], whole.pods[::10])
    left = {
        name: replay(tenth, policy_for(name, 42), 42, arrived=1.05).points[100].unallocated_pct
        for name in ("random", "fragmentation", "plimsoll")
    }
    assert left["fragmentation"] < left["random"] - 2
    assert left["plimsoll"] < left["random"] - 2
