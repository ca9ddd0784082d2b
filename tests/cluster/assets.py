"""The place of the Kubernetes binaries, for the build that makes them and the fixtures that start them.

What always holds: a binary has the same name everywhere (`etcd`, although Go builds it as `server`), and a
folder of binaries belongs to one `go.sum`: a changed version is another folder, never a stale binary.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

MODULE_DIR = Path(__file__).parent
# `make test` starts these. A test that needs another binary moves it up here.
NEEDED = ("kube-apiserver", "etcd", "kubectl", "kube-scheduler", "kube-controller-manager")
PACKAGES: Mapping[str, str] = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
}


class MissingBinaryError(Exception):
    """A Kubernetes binary is neither built nor given. The remedy is to build it, not to retry."""


def cache_root() -> Path:
    """The folder for the build's files: `$PLIMSOLL_CACHE`, or `plimsoll` in the user's cache folder."""
    if own := os.environ.get("PLIMSOLL_CACHE"):
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "plimsoll"


def kubernetes_version() -> str:
    """The version that `go.mod` requires, for instance `v1.36.3`."""
    required = re.search(
        r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", (MODULE_DIR / "go.mod").read_text(), re.MULTILINE
    )
    assert required is not None, "tests/cluster/go.mod requires no k8s.io/kubernetes"
    return required[1]


def build_dir() -> Path:
    """The folder of the binaries that belong to the present `go.sum`; it may not exist yet."""
    digest = hashlib.sha256((MODULE_DIR / "go.sum").read_bytes()).hexdigest()
    return cache_root() / "cluster" / digest[:16]


def given_dir() -> Path | None:
    """The folder named by `KUBEBUILDER_ASSETS`; None when it is not set."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(given).absolute() if given else None


def missing(names: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """The names from `names` that `folder` does not hold as executable files, in the same order."""
    return tuple(name for name in names if not os.access(folder / name, os.X_OK))


def binary(name: str) -> Path:
    """The path of the executable `name`, one of `PACKAGES`.

    `KUBEBUILDER_ASSETS` is preferred when it holds all of `NEEDED`: one run never mixes two Kubernetes.

    Raises:
        MissingBinaryError: It is in neither folder; the message says how to build it.
    """
    given = given_dir()
    folder = given if given and not missing(NEEDED, given) else build_dir()
    if not missing((name,), folder):
        return folder / name
    flag = "" if name in NEEDED else " --all"
    msg = (
        f"{name} is not in {folder}; remedy: `make test` builds it, "
        f"or `.venv/bin/python -m tests.cluster.build{flag}`"
    )
    raise MissingBinaryError(msg)
