"""The placer places pods without a GPU where kube-scheduler itself would allow it, and refuses exactly the others.

Clusters and pods are drawn from fixed seeds (`differential`). `make bench-contract` runs 500 more.
"""

from collections.abc import AsyncIterator

import pytest

from tests.placer.kube.differential import draw
from tests.placer.kube.differential.compare import Answers, Tally, compare
from tests.placer.kube.differential.features import ALL
from tests.placer.kube.differential.ground import Ground, ground
from tests.placer.kube.differential.shrink import report, shrunk
from tests.servers.apiserver import ApiServer

SEEDS = range(40)


@pytest.fixture(scope="module")
async def both(
    session_apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    """Both schedulers over the API server of the whole run, for all seeds of this file."""
    await session_apiserver.purge()
    async with ground(session_apiserver, tmp_path_factory.mktemp("differential")) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
async def test_placer_and_kube_scheduler_agree(both: Ground, seed: int) -> None:
    """The placer accepts the nodes that pass kube-scheduler's filters, and no others."""
    tally = Tally()
    await compare(both, draw.scenario(seed, ALL), tally)
    if tally.differences:
        pytest.fail(report(await shrunk(both, tally.differences[0])), pytrace=False)


def test_the_same_seed_draws_the_same_and_a_feature_changes_no_other() -> None:
    """A seed that failed once can be run again, also with more features."""
    tolerating = 0
    for seed in range(12):
        one, again = draw.scenario(seed, ALL), draw.scenario(seed, ALL)
        assert one == again
        fewer = draw.scenario(seed, ALL - {"tolerations"})
        for pod, plain in zip(one.questions, fewer.questions, strict=True):
            kept = {key: value for key, value in pod["spec"].items() if key != "tolerations"}
            assert plain["spec"] == kept
            tolerating += "tolerations" in pod["spec"]
    assert tolerating, "no seed here draws a toleration"


@pytest.mark.parametrize(
    ("answers", "difference"),
    [
        (Answers(frozenset("a"), frozenset("a"), "a", "", ""), None),
        (Answers(frozenset(), frozenset(), None, "0/1 nodes are available", ""), None),
        (Answers(frozenset("ab"), frozenset("ab"), "c", "", ""), "chose c"),
        (Answers(frozenset("a"), frozenset("a"), None, "0/1 nodes are available", ""), "says unschedulable"),
        (Answers(frozenset("ab"), frozenset("b"), "b", "", ""), "accepts other nodes"),
        (Answers(frozenset("a"), frozenset(), None, "Pod cannot be scheduled: no", ""), "says unschedulable"),
    ],
)
def test_differences_have_words(answers: Answers, difference: str | None) -> None:
    """A choice outside, a refusal in spite of a node, and a node too many or too few are differences."""
    found = answers.difference
    assert found is None if difference is None else difference in str(found)
