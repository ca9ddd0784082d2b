"""The control socket's description of containers' compute time."""

import pytest

from hook.broker.core.audit.audit import Audit
from hook.broker.core.describing import describe
from hook.broker.core.ids import ContainerKey
from hook.broker.core.journal import Journal
from hook.broker.core.lives import Lives
from hook.broker.core.registration import PodRecord
from hook.broker.core.shares.events import GateState, ShareTerms, ShareUse
from plimsoll.broker.wire import ContainerLines, Line, Register, ShareUsed
from plimsoll.ids import ContainerName, GpuUuid, PodUid

KEY = ContainerKey(PodUid("u"), ContainerName("main"))
GPU = GpuUuid("GPU-a")
POD = Register(
    pod=KEY.pod,
    namespace="team",
    name="job",
    containers=(ContainerLines(name=KEY.container, lines=(Line(gpu=GPU, line_bytes=1),)),),
)


def used(state: GateState, *, whole: bool = False) -> ShareUse:
    """A use of 30 % with 4 s waited."""
    return ShareUse(ShareTerms((GPU,), 20, 50, whole), state, used_pct=30.0, waited_s=4.0)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (used(GateState.SHUT), ShareUsed(gate="shut", used_pct=30.0, waited_s=4.0)),
        (used(GateState.METERED), ShareUsed(gate="metered", used_pct=30.0, waited_s=4.0)),
        (used(GateState.OPEN), ShareUsed(gate="open", used_pct=None, waited_s=4.0)),
        (used(GateState.OPEN, whole=True), None),
        (None, None),
    ],
)
def test_a_containers_time_is_told_where_it_is_shared_and_known(
    use: ShareUse | None, told: ShareUsed | None
) -> None:
    """Behind an open gate the use is unknown. Whole GPUs, and a container without a gate, have no share."""
    lives = Lives(Journal([], 16), "boot")
    [described] = describe([PodRecord(pod=POD)], lives, {}, {KEY: use}.get, Audit({})).containers
    assert described.share == told
