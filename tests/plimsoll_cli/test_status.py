"""The output of `plimsoll status` for two descriptions by a broker."""

from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll.broker.wire import (
    ContainerLines,
    ContainerUse,
    Description,
    GpuEnforcement,
    Line,
    ProcessUse,
    ShareUsed,
)
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.quantity import GIB
from plimsoll_cli.status import shown

A, B = GpuUuid("GPU-A"), GpuUuid("GPU-B")


@dataclass(frozen=True, slots=True)
class Had:
    """The promises and the measured use of a container; `used_pct` is None for an open gate."""

    request_pct: int = 0
    limit_pct: int = 100
    used_pct: float | None = 0.0
    waited_s: float = 0.0


def use(name: str, had: Had | None, *gpus: GpuUuid, pids: tuple[int, ...] = (7,)) -> ContainerUse:
    """A container that holds 1 of 2 GiB on each of its GPUs; a whole one if `had` is absent."""
    terms = had or Had()
    lines = tuple(
        Line(gpu=gpu, line_bytes=2 * GIB, share_pct=terms.request_pct, limit_pct=terms.limit_pct)
        for gpu in gpus or (A,)
    )
    gate = "open" if terms.used_pct is None else "shut"
    share = ShareUsed(gate=gate, used_pct=terms.used_pct, waited_s=terms.waited_s)
    processes = tuple(ProcessUse(pid=pid, used_bytes=(GIB,) * len(lines), denied_count=0) for pid in pids)
    return ContainerUse(
        pod=PodUid(name),
        namespace="team",
        pod_name=name,
        container=ContainerLines(name=ContainerName("main"), lines=lines, whole=had is None),
        processes=processes,
        share=None if had is None else share,
    )


def lines_of(*uses: ContainerUse, before: tuple[ContainerUse, ...] | None = None) -> list[str]:
    """The lines for two descriptions, half a second apart. Containers in the first had waited 10 s by then."""
    earlier = before if before is not None else tuple(map(_earlier, uses))
    return list(shown(Description(containers=earlier), Description(containers=uses), 0.5))


def _earlier(one: ContainerUse) -> ContainerUse:
    return one if one.share is None else replace(one, share=replace(one.share, waited_s=10.0))


def test_each_gpu_is_shown_with_its_promises_and_containers() -> None:
    """A container of several GPUs stands under each of them."""
    job = use("job", Had(30, 80, used_pct=79.6, waited_s=10.1), A, B)
    assert lines_of(job, use("server", Had(20, used_pct=20, waited_s=10), B)) == [
        "GPU-A: promised are 30 % of its time, 2Gi of its memory",
        "  pod       container  pids  memory      request  limit  used  waited",
        "  team/job  main       7     1Gi of 2Gi  30 %     80 %   80 %  20 %    waits: is at its limit",
        "GPU-B: promised are 50 % of its time, 4Gi of its memory",
        "  pod          container  pids  memory      request  limit  used  waited",
        "  team/job     main       7     1Gi of 2Gi  30 %     80 %   80 %  20 %    waits: is at its limit",
        "  team/server  main       7     1Gi of 2Gi  20 %     100 %  20 %  0 %     is not held up",
    ]


def test_a_narrow_terminal_shows_each_reason_on_a_line_of_its_own() -> None:
    """At 80 columns nothing that matters is cut: the reason goes below, and pids are left out."""
    one = use("a-job-of-some-length", Had(30, 80, used_pct=79.6, waited_s=10.1), A)
    described = Description(containers=(one,))
    before = Description(containers=(_earlier(one),))
    assert list(shown(before, described, 0.5, 80)) == [
        "GPU-A: promised are 30 % of its time, 2Gi of its memory",
        "  pod                        container  memory      request  limit  used  waited",
        "  team/a-job-of-some-length  main       1Gi of 2Gi  30 %     80 %   80 %  20 %",
        "    waits: is at its limit",
    ]


def test_why_a_container_has_no_more_is_said() -> None:
    """A line shows the most specific reason that keeps the container from more time."""
    waits = 10.2
    for one, why in (
        (use("a", None), "owns this GPU"),
        (use("a", Had(30, used_pct=None)), "runs freely: its gate is open, nothing is metered"),
        (use("a", Had(30), pids=()), "no program of it uses a GPU yet"),
        (use("a", Had(30, used_pct=0, waited_s=10)), "wants no time now"),
        (use("a", Had(30, used_pct=60, waited_s=10.001)), "is not held up"),
        (use("a", Had(30, 50, used_pct=48, waited_s=waits)), "waits: is at its limit"),
        (use("a", Had(30, 50, used_pct=20, waited_s=waits)), "waits: has less than its request"),
        (use("a", Had(0, used_pct=20, waited_s=waits)), "waits: others are behind; requested nothing"),
        (use("a", Had(90, used_pct=99, waited_s=waits)), "waits: others are behind; has its request"),
    ):
        assert lines_of(one)[-1].endswith(f"  {why}")


def test_who_is_new_or_has_a_new_broker_has_no_known_wait() -> None:
    """No wait is shown for a new container or under a new broker, whose count began between the descriptions."""
    now = use("a", Had(30, used_pct=20, waited_s=0.3))
    for before in ((), (use("a", Had(30, waited_s=90)),)):
        assert lines_of(now, before=before)[-1].endswith("  30 %     100 %  20 %  –")


def test_whole_gpus_and_many_processes_are_shown_short() -> None:
    """A whole GPU has no percentages, and of many processes the line names the first."""
    lines = lines_of(use("a", None, pids=(1, 2, 3, 4)))
    assert lines[0] == "GPU-A: promised whole"
    assert lines[2] == "  team/a  main       1,2,3,…  4Gi of 2Gi  whole    –      –     –       owns this GPU"


def test_what_holds_memory_on_a_gpu_is_shown_with_the_reason() -> None:
    """A line below each GPU says who holds lines of memory there, and why the driver does not."""
    held = (
        GpuEnforcement(gpu=A, enforcement="preload", reason="the driver is too old"),
        GpuEnforcement(gpu=B, enforcement="both"),
    )
    described = Description(containers=(use("job", Had(30), A, B),), enforcement=held)
    lines = list(shown(described, described, 0.5))
    assert lines[1] == "  the library holds containers to their lines of memory; the driver is too old"
    assert lines[5] == "  the library and the driver hold containers to their lines of memory"


def test_an_idle_machine_is_said_to_be_one() -> None:
    """Without containers the output says that the machine is idle."""
    assert lines_of() == ["nobody has a GPU of this machine"]


def test_a_gpu_that_is_not_healthy_is_shown_with_its_reason() -> None:
    """The health comes before the containers, also of a GPU that has none."""
    described = Description(containers=(use("job", Had(30), A),), unhealthy={B: "fatal: XID 79: text"})
    lines = list(shown(Description(containers=()), described, 0.5))
    assert lines[0] == "GPU-B is not healthy: fatal: XID 79: text"
    assert lines[1].startswith("GPU-A: promised")
