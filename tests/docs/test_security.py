"""The threat model of docs/security.md: each row names a test that exists, and each right of a pod has a reason."""

import ast
import re
from pathlib import Path

from tests.deploy.rendering import CASES, templates

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
ATTACKERS = (
    "A tenant in its container",
    "A tenant with kubectl",
    "A neighbour on NATS or Redis",
    "A compromised node",
)
COLUMNS = ["tried", "what happens", "not prevented", "shown by"]


def section(title: str) -> str:
    """The text below a heading, up to the next heading of any level."""
    [found] = re.findall(rf"^##+ {title}\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


def rows(title: str) -> list[list[str]]:
    """The cells of each row of a section's table, its head first."""
    lines = re.findall(r"^\|(.*)\|$", section(title), re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith(" ---")]


def test_every_test_named_exists() -> None:
    """Each `path::name` is a test function in that file."""
    assert len(TESTS) > 50
    for path, name in TESTS:
        tree = ast.parse((ROOT / path).read_text())
        names = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in names, f"{path}::{name}"
    assert len(re.findall(r"\.py::", TEXT)) == len(TESTS)


def test_every_attack_has_an_outcome_and_a_test() -> None:
    """Each row says what happens or what is not prevented, and names a test of it."""
    for title in ATTACKERS:
        head, *attacks = rows(title)
        assert head == COLUMNS
        assert len(attacks) >= 5, title
        for tried, happens, open_, shown in attacks:
            assert tried, title
            assert happens or open_, tried
            assert re.search(r"`tests/.*::", shown), tried


def test_every_right_of_a_part_on_nodes_has_a_reason() -> None:
    """Whatever broker and monitor have beyond other pods, in any form of the chart, is in the table."""
    explained = [row for row in rows("What each pod of the chart may do")[1:] if all(row)]
    for part in ("monitor", "broker"):
        told = " ".join(" ".join(cells[:2]) for cells in explained if cells[0].startswith(part))
        for values in CASES.values():
            [spec] = [pod["spec"] for name, pod in templates(values) if name == f"plimsoll-{part}"]
            [container] = spec["containers"]
            context = container["securityContext"]
            rights = {key for key in ("hostPID", "hostIPC") if spec.get(key)}
            rights |= {"privileged"} if context.get("privileged") else set()
            rights |= {f"runAsUser: {context['runAsUser']}"} if "runAsUser" in context else set()
            rights |= {"hostPath"} if any("hostPath" in one for one in spec["volumes"]) else set()
            rights |= set(context.get("capabilities", {}).get("add", ()))
            for right in rights:
                assert f"`{right}`" in told, f"{part}: {right}"
