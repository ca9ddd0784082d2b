"""A few key figures summarise a whole run."""

from bench.hook.share.__main__ import steps
from bench.hook.share.keys import KEYS, summary
from bench.hook.share.tenants import Json


def _cap(name: str, error_pts: float, *, is_judged: bool = True) -> Json:
    return {"case": f"cap/{name}", "error_pts": error_pts, "ripple_pts": 1.0, "is_judged": is_judged}


def test_an_error_counts_by_its_size_and_a_kernel_too_long_to_judge_does_not() -> None:
    """The key of errors of +0.3, -0.8 and an unjudged 5 points is 0.8."""
    found = summary([_cap("a", 0.3), _cap("b", -0.8), _cap("c", 5.0, is_judged=False)], is_whole=False)
    assert found["cap_error_pts_max"] == 0.8
    assert found["failed"] == []


def test_the_worst_ratio_is_the_least() -> None:
    """The key is the worst ratio, so a program with a hundredth of its work done shows."""
    rows: list[Json] = [
        {"case": f"coupled/{name}", "coupled_progress_ratio": ratio, "coupled_beside_ratio": 1.0}
        for name, ratio in (("gil", 0.01), ("streams", 1.0))
    ]
    assert summary(rows, is_whole=False)["coupled_progress_ratio_min"] == 0.01


def test_a_case_that_failed_is_named_with_the_keys_that_it_leaves_in_doubt() -> None:
    """A failed case puts its key in doubt, though other cases of that key succeeded."""
    rows: list[Json] = [_cap("a", 0.1), {"case": "cap/b", "failed": "no answer"}]
    assert summary(rows, is_whole=False)["failed"] == ["cap/b", "cap_error_pts_max", "cap_ripple_pts_max"]


def test_a_figure_of_several_cases_that_failed_leaves_their_key_in_doubt() -> None:
    """`quota` covers several quanta, and a failed case of any of them puts it in doubt."""
    failed = summary([{"case": "quota", "failed": "no answer"}], is_whole=False)["failed"]
    assert failed == ["quota", "quota_loss_pct_default"]


def test_in_a_whole_run_a_key_without_a_value_has_failed() -> None:
    """In a whole run a key without a value has failed. In a run of some cases only their keys count."""
    names = [key.name for key in KEYS]
    assert summary([], is_whole=True)["failed"] == names
    assert summary([], is_whole=False) == {**dict.fromkeys(names), "failed": []}


def test_a_quick_run_has_a_case_for_every_key() -> None:
    """The quick run, which is run often, has the same keys as the full run."""
    quick = [step.name for step in steps(quick=True) if step.is_quick]
    for key in KEYS:
        assert key.cases.startswith("quota/") or any(name.startswith(key.cases) for name in quick), key.name
