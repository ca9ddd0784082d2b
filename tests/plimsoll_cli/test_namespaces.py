"""The commands that take `-n` ask about the namespace that kubectl would take."""

import argparse
import contextlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from plimsoll.part.errors import InputError, PlimsollError
from plimsoll_cli import cluster
from plimsoll_cli.commands import COMMANDS
from plimsoll_cli.options import namespace_of

CONTEXTS = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: a, context: {cluster: c, namespace: team-a}}, {name: plain, context: {cluster: c}}]
"""
OF_NAMESPACES = ("explain", "relocation", "resize", "pods")


class Recorder(BaseHTTPRequestHandler):
    """An API server that knows nothing, and keeps what it was asked for."""

    paths: ClassVar[list[str]] = []

    def answer(self) -> None:
        """404 to every request."""
        self.paths.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"kind": "Status", "reason": "NotFound", "message": "not found", "code": 404}'
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = answer  # noqa: N815 - names of http.server


@pytest.mark.parametrize(
    ("command", "words", "path"),
    [
        ("explain", "trainer", "/pods/team-a/trainer/explain"),
        ("relocation", "trainer", "namespace=team-a"),
        ("resize", "trainer --gpu-memory 2Gi", "/namespaces/team-a/pods/trainer"),
    ],
)
def test_the_pod_of_that_namespace_is_meant(
    home: Path, capfd: pytest.CaptureFixture[str], command: str, words: str, path: str
) -> None:
    """Two namespaces may have a pod of one name; no request names the other one's."""
    Recorder.paths.clear()
    with HTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = CONTEXTS.replace("127.0.0.1:9", f"127.0.0.1:{server.server_port}")
        (home / ".kube" / "config").write_text(text + "current-context: a\n")
        with contextlib.suppress(PlimsollError):
            parsed = parsed_by(command, *words.split())
            COMMANDS[command].run(parsed)
        server.shutdown()
    assert path in Recorder.paths[-1]
    if command == "resize":
        assert "pod: 'team-a/trainer' does not exist" in capfd.readouterr().err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a kubeconfig, of a process that runs in no pod."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "PLIMSOLL_PLACER_URL", "PLIMSOLL_NATS_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".kube").mkdir()
    (tmp_path / "namespace").write_text("team-sa\n")
    monkeypatch.setattr(cluster, "NAMESPACE_FILE", tmp_path / "namespace")
    return tmp_path


def parsed_by(command: str, *words: str) -> argparse.Namespace:
    """The options that a command reads."""
    parser = argparse.ArgumentParser()
    COMMANDS[command].declare(parser)
    return parser.parse_args([*words])


def asked(command: str, *words: str) -> str:
    """The namespace that a command asks about."""
    return namespace_of(parsed_by(command, *words, *([] if command == "pods" else ["trainer"])))


@pytest.mark.parametrize(
    ("words", "in_pod", "namespace"),
    [
        ("", False, "team-a"),
        ("", True, "team-a"),
        ("-n team-b", False, "team-b"),
        ("--context plain", False, "default"),
        ("--context plain", True, "team-sa"),
    ],
)
@pytest.mark.parametrize("command", OF_NAMESPACES)
def test_the_context_names_the_namespace(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: str, namespace: str, *, in_pod: bool
) -> None:
    """`-n` counts first, then the context, then the pod in which the command runs."""
    (home / ".kube" / "config").write_text(CONTEXTS + "current-context: a\n")
    if in_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert asked(command, *words.split()) == namespace


@pytest.mark.parametrize(
    ("command", "words", "namespace"),
    [
        ("explain", "--placer http://127.0.0.1:8080", "team-a"),  # as after `kubectl port-forward`
        ("pods", "--placer ./placer.sock", "default"),
    ],
)
def test_local_nodes_have_no_context(home: Path, command: str, words: str, namespace: str) -> None:
    """A socket leads to nodes that no cluster has; a placer's URL may lead to the kubeconfig's."""
    (home / ".kube" / "config").write_text(CONTEXTS + "current-context: a\n")
    assert asked(command, *words.split()) == namespace


def test_the_first_file_counts_that_names_a_context(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several files, too, the namespace is that of the context by which the command asks."""
    for name, text in (("a", CONTEXTS + "current-context: a\n"), ("b", "current-context: plain\n")):
        (home / name).write_text(text)
    monkeypatch.setenv("KUBECONFIG", f"{home / 'a'}:{home / 'b'}")
    assert asked("pods") == "team-a"


@pytest.mark.parametrize("in_pod", [True, False])
def test_without_a_kubeconfig(home: Path, monkeypatch: pytest.MonkeyPatch, *, in_pod: bool) -> None:
    """In a pod the namespace is the pod's own; elsewhere the command itself says that it finds no cluster."""
    assert home.exists()
    if in_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert asked("explain") == ("team-sa" if in_pod else "default")


def test_a_kubeconfig_that_cannot_be_used_is_named(home: Path) -> None:
    """A command does not ask about another namespace than the user means."""
    (home / ".kube" / "config").write_text(CONTEXTS + "current-context: zz\n")
    with pytest.raises(InputError, match="zz"):
        asked("resize")
