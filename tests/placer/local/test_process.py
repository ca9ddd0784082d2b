"""A container's command and environment become those of a process."""

from pathlib import Path

from placer.local.process import command_of
from plimsoll.broker.environment import Enforcement
from plimsoll.broker.wire import Directories
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.kube.models import Container, EnvVar

ENFORCEMENT = Enforcement(
    Path("/lib/libplimsoll.so"),
    Directories(name=ContainerName("main"), limits_dir="/limits", counts_dir="/counts"),
    (GpuUuid("GPU-a"), GpuUuid("GPU-b")),
)


def container(*words: str, **env: str) -> Container:
    """A container with a command and an environment."""
    variables = [EnvVar(name=name, value=value) for name, value in env.items()]
    return Container(name="main", command=[*words], args=["$(A)"], env=variables)


def test_references_are_replaced_as_in_kubernetes() -> None:
    """`$(NAME)` of an earlier variable becomes its value, an unknown one stays, and `$$` escapes."""
    given = container("x", "$(B)-$(NOPE)-$$(A)-$A", A="1", B="$(A)2")
    command = command_of(PodUid("u"), given, {}, None)
    assert command.arguments == ("x", "12-$(NOPE)-$(A)-$A", "1")


def test_manifest_cannot_point_the_hook_elsewhere() -> None:
    """The hook's own values override the manifest's. A preload of the manifest stays, behind the hook's."""
    hostile = container("x", PLIMSOLL_LIMITS_DIR="/mine", CUDA_VISIBLE_DEVICES="all", LD_PRELOAD="/its.so")
    environment = command_of(PodUid("u"), hostile, {"PATH": "/bin"}, ENFORCEMENT).environment
    assert environment == {
        "PATH": "/bin",
        "LD_PRELOAD": "/lib/libplimsoll.so:/its.so",
        "PLIMSOLL_LIMITS_DIR": "/limits",
        "PLIMSOLL_COUNTS_DIR": "/counts",
        "PLIMSOLL_POD_UID": "u",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b",
    }
