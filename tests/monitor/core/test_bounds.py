"""No message and no round grows without bound with the tasks of a node."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from monitor.core.lifecycle import LoadingRules, Owner, TaskKey
from monitor.core.node_state import Thresholds, bounded, gpus
from monitor.core.observation import JOURNAL_START, Findings, Observation, observe
from monitor.core.reports import Batch, Identity, Reports
from monitor.core.tasks import ROUND_EVENTS, ListedProcess, Listing, Tasks
from monitor.outbox.transaction import COVERED_BYTES
from plimsoll.envelope import decode_report
from plimsoll.events import TASKS_AT_MOST, Gpu, NodeState, Phase
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid, ProcessKey
from plimsoll.nvml.readings import GpuReading

RULES = LoadingRules(settle_s=1.0, tolerance_bytes=8, reload_bytes=64)
GPUS = tuple(GpuUuid(f"GPU-5a1c0d2e-1111-2222-3333-44445555666{index}") for index in range(8))
MESSAGE_BYTES = 600_000
"""Well below the 1 MiB that NATS takes by default."""


def owner(pid: int, pods: int) -> Owner:
    """One of this many pods of this process."""
    return Owner(PodUid(f"0b7e8f3c-1d2a-4c5b-9e6f-7a8b9c{pid % pods:06d}"), ContainerName("worker"))


def listing(pids: range, pods: int = 100) -> Listing:
    """These processes, spread over the GPUs."""
    processes = (
        ListedProcess(TaskKey(ProcessKey(pid, 123456), GPUS[pid % len(GPUS)]), pid << 20, owner(pid, pods))
        for pid in pids
    )
    return Listing(frozenset(GPUS), tuple(processes))


def node(tasks: Tasks) -> tuple[Gpu, ...]:
    """The GPUs with these tasks."""
    readings = (
        GpuReading(uuid, index, "NVIDIA H100 80GB HBM3", 80 << 30, 0, 40 << 30)
        for index, uuid in enumerate(GPUS)
    )
    return gpus(readings, {}, tasks.lives.values())


class Node:
    """A monitor's core, whose rounds are all stored.

    Attributes:
        states: every state and left-out state that was published, in order.
        largest_bytes: of a message.
        largest_round_bytes: of a round's messages together.
    """

    def __init__(self) -> None:
        self.tasks = Tasks()
        self.reports = Reports(NodeName("node-1"), Identity("boot", 3), Thresholds(10, 1 << 40, 60))
        self.states: list[NodeState] = []
        self.phases: list[tuple[int, Phase]] = []
        self.largest_bytes = self.largest_round_bytes = 0

    def look(self, observation: Observation, now_s: float = 0.0) -> int:
        """Rounds until nothing is left over; returns how many."""
        deaths = set(observation.deaths)
        for rounds in count(1):
            left = Observation(listing=observation.listing, deaths=tuple(deaths))
            findings = observe(self.tasks, JOURNAL_START, left, now_s, RULES)
            self.store(
                self.reports.batch(findings, node(findings.tasks), now_s, "2026-01-01T00:00:00Z"), findings
            )
            deaths -= set(findings.ended)
            if not findings.has_more:
                return rounds
        raise AssertionError

    def store(self, batch: Batch, findings: Findings) -> None:
        """The outbox takes a round."""
        self.tasks = findings.tasks
        self.reports.stored(batch, findings.tasks.lives)
        sizes = [len(entry.body) for entry in batch.entries]
        self.largest_bytes = max(self.largest_bytes, *sizes, 0)
        self.largest_round_bytes = max(self.largest_round_bytes, sum(sizes))
        for entry in batch.entries:
            report = decode_report(entry.body)
            self.states.append(report.state)
            assert report.state.is_omitted != entry.carries_state
            if report.task is not None:
                self.phases.append((report.task.pid, report.task.phase))


def test_thousands_of_tasks_at_once_are_small_rounds_of_small_messages() -> None:
    """Each of 5000 tasks has its start and its exit, in messages and rounds of bounded size."""
    ours, pids = Node(), range(1, 5001)
    assert ours.look(Observation(listing=listing(pids))) == len(pids) // ROUND_EVENTS + 1
    deaths = tuple(ProcessKey(pid, 123456) for pid in pids)
    assert ours.look(Observation(deaths=deaths)) == len(pids) // ROUND_EVENTS + 1
    for phase in (Phase.STARTED, Phase.EXITED):
        assert [pid for pid, its in ours.phases if its is phase] == sorted(pids, key=lambda pid: pid)
    assert ours.largest_bytes < MESSAGE_BYTES
    assert ours.largest_round_bytes < COVERED_BYTES


def test_of_many_events_at_once_the_last_one_has_the_state() -> None:
    """The others repeat the number of the state before, so readers of newer states alone keep what they know.

    The first event of an epoch has a state too, as no reader knows one.
    """
    ours = Node()
    ours.look(Observation(listing=listing(range(1, 201))))
    assert [(state.seq, state.is_omitted) for state in ours.states] == [
        (1, False),
        *[(1, True)] * 198,
        (2, False),
    ]
    assert sum(len(gpu.tasks) for gpu in ours.states[-1].gpus) == 200
    ours.look(Observation(listing=listing(range(1, 203))))
    assert [(state.seq, state.is_omitted) for state in ours.states[200:]] == [(3, False), (4, False)]


@given(st.integers(1, 400), st.integers(1, 60), st.integers(1, 50))
def test_a_state_keeps_the_sums_of_pods_where_it_has_room_for_them(tasks: int, pods: int, most: int) -> None:
    """A bounded state has at most this many entries; every pod that it shows has all of its processes and bytes."""
    found = node(
        observe(Tasks(), JOURNAL_START, Observation(listing=listing(range(tasks), pods)), 0, RULES, 999).tasks
    )
    small = bounded(found, most)
    assert sum(len(gpu.tasks) for gpu in small) <= most
    assert [(gpu.uuid, gpu.used_bytes) for gpu in small] == [(gpu.uuid, gpu.used_bytes) for gpu in found]
    for full, gpu in zip(found, small, strict=True):
        for one in gpu.tasks:
            same = [task for task in full.tasks if (task.pod, task.container) == (one.pod, one.container)]
            assert (one.used_bytes, one.count) == (
                sum(task.used_bytes for task in same),
                len(same),
            ) or small == found
    if sum(len({task.pod for task in gpu.tasks}) for gpu in found) <= most:
        assert sum(task.count for gpu in small for task in gpu.tasks) == tasks


def test_a_node_with_few_tasks_lists_each() -> None:
    """Up to the bound, every process has its own entry."""
    found = node(
        observe(
            Tasks(), JOURNAL_START, Observation(listing=listing(range(TASKS_AT_MOST), 1)), 0, RULES, 9999
        ).tasks
    )
    assert bounded(found) is found
