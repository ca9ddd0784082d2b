"""The independent watch counts each pod once, by the placer's writes alone, and blames no honest order of writes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.answers import DECISION
from tests.chaos.fleet import CARDS, GIB
from tests.chaos.journal import Journal
from tests.chaos.labels import AFFINITY, ANTI_AFFINITY, EXCLUSION
from tests.chaos.leases import NAME, Leases
from tests.chaos.pods import MEMORY
from tests.chaos.witness import TENANT, Witness

GPU = "GPU-00-0"


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    """A watch that has seen nothing yet."""
    journal = Journal(tmp_path / "journal.jsonl", seed=0)
    yield Witness(CARDS, journal)
    journal.close()


def pod(
    uid: str, gib: int, version: int, *, phase: str = "Running", given_gib: int | None = None
) -> dict[str, Any]:
    """A bound pod that asks for this much memory, and was given `given_gib` by its decision."""
    grant = {"gpu": GPU, "memory_bytes": (given_gib or gib) * GIB, "line_bytes": 1}
    answers = {"gpus.plimsoll.dev/main": GPU, DECISION: json.dumps({"containers": {"main": [grant]}})}
    limits = {MEMORY: f"{gib}Gi"}
    return {
        "metadata": {"name": uid, "uid": uid, "resourceVersion": str(version), "annotations": answers},
        "spec": {
            "schedulerName": "plimsoll",
            "nodeName": CARDS[GPU].node,
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
        "status": {"phase": phase},
    }


def test_two_pods_on_one_gpus_memory_are_found(witness: Witness) -> None:
    """Twice 12 GiB on 23 GiB is found once, and a pod that ended makes room."""
    witness.take(pod("a", 12, 1), deleted=False)
    witness.take(pod("a", 12, 2, phase="Succeeded"), deleted=False)
    witness.take(pod("b", 12, 3), deleted=False)
    assert witness.journal.findings == []
    witness.take(pod("c", 12, 4), deleted=False)
    witness.take(pod("c", 12, 5), deleted=False)
    assert len(witness.journal.findings) == 1
    assert "bytes are promised" in witness.journal.findings[0]


def test_labels_that_do_not_hold_are_found(witness: Witness) -> None:
    """A pod beside another's exclusion label, and a second GPU of an affinity label, are found."""
    alone, beside, same = (pod(name, 1, version) for version, name in enumerate(("a", "b", "c"), start=1))
    for one in (alone, same):
        one["metadata"]["annotations"] |= {EXCLUSION: "x", AFFINITY: "y"}
    witness.take(alone, deleted=False)
    witness.take(same, deleted=False)
    assert (witness.journal.findings, witness.labels.closed()) == ([], {GPU})
    witness.take(beside, deleted=False)
    found = [one.partition(" s: ")[2] for one in witness.journal.findings]
    assert found == [f"exclusion does not hold between b and {one}" for one in "ac"]
    elsewhere = json.loads(json.dumps(pod("d", 1, 4)).replace(GPU, "GPU-00-1"))
    elsewhere["metadata"]["annotations"] |= {AFFINITY: "y", ANTI_AFFINITY: "z"}
    witness.take(elsewhere, deleted=False)
    found = [one.partition(" s: ")[2] for one in witness.journal.findings[2:]]
    assert found == [f"affinity does not hold between d and {one}" for one in "ac"]


def test_a_list_is_judged_as_a_whole(witness: Witness) -> None:
    """A list may show a new pod before the end of the old one whose room it has."""
    witness.take(pod("a", 12, 1), deleted=False)
    witness.take_list([pod("b", 12, 3), pod("a", 12, 2, phase="Failed")])
    witness.take_list([pod("c", 12, 5)])
    assert witness.journal.findings == []
    assert witness.sums.bytes_on(GPU) == 12 * GIB


def test_a_resize_counts_and_a_tenants_edit_does_not(witness: Witness) -> None:
    """A decision that the placer rewrote counts; the same text by a tenant's hand leaves the sums as they are."""
    witness.take(pod("a", 4, 1), deleted=False)
    witness.take(pod("a", 4, 2, given_gib=8), deleted=False)
    assert witness.sums.bytes_on(GPU) == 8 * GIB
    edited = pod("a", 4, 3, given_gib=1)
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{DECISION}": {}}}}
    edited["metadata"]["managedFields"] = [{"manager": TENANT, "fieldsV1": fields}]
    witness.take(edited, deleted=False)
    assert witness.sums.bytes_on(GPU) == 8 * GIB


def test_a_pod_that_moves_is_found(witness: Witness) -> None:
    """A pod with another node than before is found."""
    witness.take(pod("a", 4, 1), deleted=False)
    moved = pod("a", 4, 2)
    moved["spec"]["nodeName"] = "elsewhere"
    witness.take(moved, deleted=False)
    assert len(witness.journal.findings) == 1


def test_the_holder_at_a_version_is_the_last_before() -> None:
    """Renewals change no holder, and a version belongs to the holder that was written last before it."""
    leases = Leases()
    for version, holder in ((3, "placer-0-a"), (5, "placer-0-a"), (9, "placer-1-b")):
        leases.take(
            {
                "metadata": {"name": NAME, "resourceVersion": str(version)},
                "spec": {"holderIdentity": holder},
            },
            deleted=False,
        )
    assert [leases.holder_at(version) for version in (2, 3, 8, 9)] == [
        None,
        "placer-0-a",
        "placer-0-a",
        "placer-1-b",
    ]
