"""The webhook's settings: one frozen record, read once from the environment when it starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from msgspec import Meta

from placer.webhook.core.judgement import AdmissionRules, GpuAccess
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.dialects import Dialect
from plimsoll.dialects.gpushare import Gpushare
from plimsoll.dialects.hami import Hami
from plimsoll.dialects.kai import Kai
from plimsoll.kube.kubeconfig import IN_CLUSTER, ClusterSettings, check_kubeconfig
from plimsoll.part import settings
from plimsoll.part.errors import InputError
from plimsoll.part.settings import ProcessSettings

PREFIX: Final = "PLIMSOLL_WEBHOOK_"

_NAME: Final = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings, ClusterSettings):
    """Each field is read from `PLIMSOLL_WEBHOOK_` and its name in capitals.

    Attributes:
        port: the TCP port of reviews at `http_address`, by HTTPS; 0 takes a free port, which the log names.
        names: further DNS names and IP addresses for the certificate, with commas, where the configuration has a URL.
        extended_schedulers: schedulers to which the placer is an extender, with commas. Pods that ask for GPUs of
            ours under any other scheduler than `plimsoll` and these are refused.
        gpu_access: how GPUs come into containers: `runtime-class`; `default-runtime` where the nodes' default
            runtime is NVIDIA's; `none` where no runtime reads `NVIDIA_VISIBLE_DEVICES` (native CDI or NRI without a
            runtime class), so that pods with GPUs are refused by name.
        runtime_class: the runtime class of pods with GPUs, for `runtime-class`.
        hami: whether to understand `nvidia.com/gpumem`, `gpumem-percentage` and `gpucores`.
        gpushare: the unit of `aliyun.com/gpu-mem`, `GiB` or `MiB`; `off` leaves such pods alone.
        kai: whether to understand the annotations `gpu-fraction` and `gpu-memory`.
    """

    port: Annotated[int, Meta(ge=0, le=65535)] = 8443
    kubeconfig: str = IN_CLUSTER
    names: str = ""
    extended_schedulers: str = ""
    gpu_access: GpuAccess = GpuAccess.RUNTIME_CLASS
    runtime_class: Annotated[str, Meta(pattern=_NAME)] = "nvidia"
    hami: bool = False
    gpushare: Literal["off", "GiB", "MiB"] = "off"
    kai: bool = False


def load(environment: Mapping[str, str]) -> Settings:
    """Read and check the settings.

    Raises:
        InputError: a setting is unreadable, out of bounds, unknown, or cannot work; several in a group.
    """
    return settings.load(
        Settings,
        environment,
        PREFIX,
        checks={"kubeconfig": check_kubeconfig},
        rules=[_check_schedulers],
    )


def _check_schedulers(given: Settings) -> None:
    if SCHEDULER_NAME in words(given.extended_schedulers):
        problem = "names the placer's own scheduler"
        remedy = "leave it out: its pods are always understood"
        raise InputError(PREFIX + "EXTENDED_SCHEDULERS", given.extended_schedulers, problem, remedy)


def rules_of(given: Settings) -> AdmissionRules:
    """The choices that answers depend on."""
    dialects: list[Dialect] = [Hami()] if given.hami else []
    if given.gpushare != "off":
        dialects.append(Gpushare(given.gpushare))
    if given.kai:
        dialects.append(Kai())
    extended = words(given.extended_schedulers)
    return AdmissionRules(extended, given.gpu_access, given.runtime_class, tuple(dialects))


def words(text: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
