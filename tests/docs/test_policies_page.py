"""The example of a policy works, and the page about policies names all."""

import re
from pathlib import Path

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies import POLICIES, Policy
from placer.core.policies.installed import Installed
from placer.core.refusal import Refusal
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from plimsoll.ids import NodeName
from tests.placer.core.worlds import declared, gpu, request, state

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "policies.md"
GUIDE = ROOT / "placer" / "core" / "policies" / "README.md"


def example() -> Policy:
    """The policy that the guide defines."""
    found = re.search("```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, object] = {"__name__": "my_policies"}
    exec(found[1], names)  # noqa: S102 - our own page
    made = names["QUIET"]
    assert isinstance(made, Policy)
    return made


def test_the_example_decides() -> None:
    """It takes the GPU that computed least, and refuses a GPU with three containers, with its own reason."""
    decider, quiet = Decider(ReportView(), Ledger(), Metrics()), Installed(example())
    decider.reports.apply(state("n", gpu("busy", idle_pct=10), gpu("idle", idle_pct=90)))
    taken = [decider.decide(request(f"p{number}", declared("main", 1)), quiet) for number in range(7)]
    gpus = [one.booking.grants[0].gpu for one in taken if isinstance(one, Plan)]
    assert gpus == ["idle"] * 3 + ["busy"] * 3
    refused = taken[-1]
    assert isinstance(refused, Refusal)
    assert refused.reasons == {NodeName("n"): ("node(s) had GPUs with enough containers",)}


def test_every_policy_has_a_row() -> None:
    """The page names each policy that a pod may name."""
    rows = PAGE.read_text()
    for name in (*POLICIES, "fragmentation", "plimsoll"):
        assert f"`{name}`" in rows
