"""Starts kube-controller-manager, with a few of its controllers or all, over an API server of the tests."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.cluster import assets
from tests.servers.control_plane import ControlPlane


def controllers(
    plane: ControlPlane, names: Sequence[str], directory: Path, options: Sequence[str] = ()
) -> AbstractAsyncContextManager[EmbeddedServer]:
    """Run these controllers until the context ends.

    Args:
        plane: the API server that they work on, as its administrator.
        names: the controllers, for instance `persistentvolume-binder-controller`; `*` is all of the default ones.
        directory: the folder for everything that they write.
        options: further options of kube-controller-manager.
    """

    def arguments(_: int, __: Path) -> Sequence[str]:
        return (
            f"--kubeconfig={plane.kubeconfig()}",
            "--secure-port=0",
            "--leader-elect=false",
            f"--controllers={','.join(names)}",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
            "--pvclaimbinder-sync-period=1s",
            *options,
        )

    kind = ServerKind(
        "kube-controller-manager",
        "http",
        "Caches are synced",
        lambda: assets.binary("kube-controller-manager"),
        arguments,
    )
    return running(kind, directory)
