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
from plimsoll.kube.kubeconfig import IN_CLUSTER, check_kubeconfig
from plimsoll.part import settings
from plimsoll.part.entry import LogLevel
from plimsoll.part.errors import InputError

PREFIX: Final = "PLIMSOLL_WEBHOOK_"

SETTLE_CHECKS: Final = 10
"""A new bundle counts as known everywhere after this many rounds: each replica has then read it several times."""

ROUNDS_PER_LIFE: Final = 100
"""The least number of rounds in a certificate's life, so that two generations settle in the last third of it."""

_NAME: Final = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is read from `PLIMSOLL_WEBHOOK_` and its name in capitals.

    Attributes:
        address, port: the TCP address of reviews, by HTTPS; 0 takes a free port, which the log names.
        http_address, http_port: the TCP address of metrics and health, without TLS; none is served without a port.
        kubeconfig: path of a kubeconfig, or `in-cluster`.
        namespace: the namespace of the Secret and of the Service. Empty: the pod's own, or `kube-system` outside of
            the cluster.
        service: the Service by which the API server reaches the webhook; the certificate is for it.
        names: further DNS names and IP addresses for the certificate, with commas, where the configuration has a URL.
        secret: the Secret in which all replicas keep the certificates.
        configurations: the MutatingWebhookConfigurations that get the CA bundle, with commas; one that does not
            exist is left out.
        certificate_life_s: seconds for which a certificate is valid; the next is made after two thirds of it.
        check_s: the interval at which Secret and configurations are read, in seconds.
        extended_schedulers: schedulers to which the placer is an extender, with commas. Pods that ask for GPUs of
            ours under any other scheduler than `plimsoll` and these are refused.
        gpu_access: how GPUs come into containers: `runtime-class`; `default-runtime` where the nodes' default
            runtime is NVIDIA's; `none` where no runtime reads `NVIDIA_VISIBLE_DEVICES` (native CDI or NRI without a
            runtime class), so that pods with GPUs are refused by name.
        runtime_class: the runtime class of pods with GPUs, for `runtime-class`.
        hami: whether to understand `nvidia.com/gpumem`, `gpumem-percentage` and `gpucores`.
        gpushare: the unit of `aliyun.com/gpu-mem`, `GiB` or `MiB`; `off` leaves such pods alone.
        kai: whether to understand the annotations `gpu-fraction` and `gpu-memory`.
        log_level: `debug`, `info`, `warning` or `error`.
    """

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8443
    http_address: str = "127.0.0.1"
    http_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    kubeconfig: str = IN_CLUSTER
    namespace: Annotated[str, Meta(pattern="^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$")] = ""
    service: Annotated[str, Meta(pattern=_NAME)] = "plimsoll-webhook"
    names: str = ""
    secret: Annotated[str, Meta(pattern=_NAME)] = "plimsoll-webhook-certificates"  # noqa: S105 - a name
    configurations: str = "plimsoll-webhook,plimsoll-webhook-dialects"
    certificate_life_s: Annotated[float, Meta(ge=5, le=31_536_000)] = 7_776_000.0
    check_s: Annotated[float, Meta(ge=0.05, le=3600)] = 60.0
    extended_schedulers: str = ""
    gpu_access: GpuAccess = GpuAccess.RUNTIME_CLASS
    runtime_class: Annotated[str, Meta(pattern=_NAME)] = "nvidia"
    hami: bool = False
    gpushare: Literal["off", "GiB", "MiB"] = "off"
    kai: bool = False
    log_level: LogLevel = "info"


RULES: Final = (settings.NotBelow(PREFIX, "certificate_life_s", "check_s", ROUNDS_PER_LIFE),)


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
        rules=[*RULES, _check_configurations, _check_schedulers],
    )


def _check_configurations(given: Settings) -> None:
    if not words(given.configurations):
        raise InputError(PREFIX + "CONFIGURATIONS", given.configurations, "names none", "name one")


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
