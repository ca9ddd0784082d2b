"""On a machine that cannot run a node, the message names what is missing."""

import os
import sys

import pytest

from tests.node import preparing, requirements
from tests.node.__main__ import main


def test_packages_of_missing_programs_are_named_once() -> None:
    """Each Debian package of a program that is not on the PATH; none for those that are."""
    programs = {"sh": "dash", "no-such-program": "some-package", "no-such-either": "some-package"}
    assert requirements.missing_packages(programs) == ("some-package",)


def test_a_user_without_rights_is_told_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason comes with its remedy."""
    monkeypatch.setattr(
        os, "geteuid", lambda: 1000
    )  # the tests may run as root, and cannot become another user
    assert requirements.obstacle() == "a kubelet needs root; remedy: run as root"


@pytest.mark.parametrize(("skip", "status"), [("", 1), ("1", 0)])
def test_a_machine_without_a_node_says_so_in_a_line(
    skip: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is installed or built first. CI, which sets the variable, goes on."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("SKIP_WITHOUT_NODE", skip)
    monkeypatch.setattr(sys, "argv", ["tests.node"])
    assert main() == status
    assert capsys.readouterr().out.split("\n") == [
        "",
        "node: no node can run here: a kubelet needs root; remedy: run as root",
        "",
    ]


def test_packages_that_cannot_be_had_are_a_failure_everywhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CI lacks nothing that a mirror gives, so it fails too when a program is still missing afterwards."""
    monkeypatch.setattr(requirements, "machine_obstacle", lambda: None)
    monkeypatch.setattr(requirements, "PROGRAMS", {"no-such-program": "some-package"})
    monkeypatch.setattr(preparing, "_run", lambda *_, **__: 1)  # no test may install packages
    monkeypatch.setenv("SKIP_WITHOUT_NODE", "1")
    monkeypatch.setattr(sys, "argv", ["tests.node"])
    assert main() == 1
    assert "error: missing: " in capsys.readouterr().out
