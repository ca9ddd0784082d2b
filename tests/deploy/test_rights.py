"""The rights that the chart gives to its accounts: each with its reason, and no more than a setting needs."""

from fnmatch import fnmatch

import pytest

from plimsoll.placer_api.live import LIVE_PATH
from plimsoll.placer_api.routes import ROUTES
from tests.deploy.rendering import CASES, objects, texts


@pytest.mark.parametrize("case", CASES)
def test_each_right_has_its_reason(case: str) -> None:
    """A comment stands before each rule of each role."""
    found = 0
    for text in texts(CASES[case]).values():
        lines = text.splitlines()
        for index, line in enumerate(lines):
            if line.startswith(("  - apiGroups:", "  - nonResourceURLs:")):
                assert lines[index - 1].startswith("  # "), line
                found += 1
    roles = [one for one in objects(CASES[case]) if one["kind"] in {"Role", "ClusterRole"}]
    assert found == sum(len(role["rules"]) for role in roles) > 10


@pytest.mark.parametrize("case", CASES)
def test_no_right_is_given_by_a_wildcard(case: str) -> None:
    """No role names `*`, and none may read Secrets but the webhook its own."""
    for role in objects(CASES[case]):
        for rule in role.get("rules", ()):
            assert "*" not in [*(name for names in rule.values() for name in names)]
            if "secrets" in rule.get("resources", ()):
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == [
                    "plimsoll-webhook-certificates"
                ]


def test_the_placer_may_evict_only_where_the_setting_says_so() -> None:
    """The right to evict pods comes with `on_violation` and `relocation`, and with nothing else."""
    for name, values in CASES.items():
        roles = [
            role for role in objects(values) if role["metadata"]["name"] != "plimsoll-cordon"
        ]  # of users
        rules = [rule for role in roles for rule in role.get("rules", ())]
        evicts = [rule for rule in rules if "pods/eviction" in rule.get("resources", ())]
        wanted = [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]
        assert evicts == (wanted if name == "everything" else [])
    for setting, evicts_too in (
        ({"on_violation": "report"}, False),
        ({"relocation": "dry-run"}, False),
        ({"relocation": "on"}, True),
    ):
        made = objects({"placer": {"settings": setting}})
        roles = [role for role in made if role["metadata"]["name"] != "plimsoll-cordon"]
        found = any(
            "pods/eviction" in rule.get("resources", ()) for role in roles for rule in role.get("rules", ())
        )
        assert found is evicts_too


def test_the_placer_reviews_tokens_only_where_it_asks_for_them() -> None:
    """The rights to review tokens and accesses, and the readers' account, come with `auth: kubernetes` alone."""
    for auth, expected in (("none", False), ("kubernetes", True)):
        made = objects({"placer": {"auth": auth}})
        rules = [rule for one in made for rule in one.get("rules", ())]
        assert any("tokenreviews" in rule.get("resources", ()) for rule in rules) is expected
        accounts = {one["metadata"]["name"] for one in made if one["kind"] == "ServiceAccount"}
        assert ("plimsoll-reader" in accounts) is expected


def test_a_reader_may_read_every_path_that_needs_a_token() -> None:
    """The readers' role names each path of the placer's port that is neither open nor for its owner alone."""
    made = objects({"placer": {"auth": "kubernetes"}})
    [paths] = [
        rule["nonResourceURLs"]
        for one in made
        for rule in one.get("rules", ())
        if one["metadata"]["name"] == "plimsoll-reader" and "nonResourceURLs" in rule
    ]
    needed = {route.path for route in ROUTES if not route.is_open and not route.owner_only} | {LIVE_PATH}
    assert [one for one in needed if not any(fnmatch(one, path) for path in paths)] == []
