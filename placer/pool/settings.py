"""The pool controller's settings: one frozen record, read once from the environment when it starts."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from placer.pool.core.release_policy import release_policy_of
from placer.pool.reservations import CARD, Template
from plimsoll.kube.kubeconfig import IN_CLUSTER, check_kubeconfig
from plimsoll.part import settings
from plimsoll.part.entry import LogLevel
from plimsoll.part.errors import InputError

PREFIX: Final = "PLIMSOLL_POOL_"

_NAME: Final = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is read from `PLIMSOLL_POOL_` and its name in capitals.

    Attributes:
        image: the image of reservation pods, which has `sleep` and the program of `card_command`.
        pull_policy: `Always`, `IfNotPresent` or `Never`.
        pull_secrets: the names of Secrets of `namespace` for the registry, with commas.
        namespace: the namespace of the reservation pods. The placer has the same under the same name.
        policy: when idle GPUs are given back: `on-demand`, `reservation(n)` or `hybrid(n, s)`, see docs/pool.md.
        acquire_s: seconds in which a reservation must name its GPU; then it is made anew. Pulling its image counts.
        runtime_class: the runtime class that brings GPUs into reservation pods. Empty: the nodes' default runtime.
        priority_class: the priority class of reservation pods, above that of native pods. Empty: none.
        card_command: the command, quoted as in a shell, by which a reservation writes the UUID of its only GPU to
            /dev/termination-log. Empty: the program of Plimsoll's own image.
        kubeconfig: path of a kubeconfig, or `in-cluster`.
        lease_name: the Lease, in `namespace`, that the controller that acts holds.
        lease_s: whole seconds for which the Lease is good.
        instance: the name of this controller in events.
        http_address, http_port: the TCP address of metrics and health; none is served without a port. 0 takes a free
            port, which the log names.
        log_level: `debug`, `info`, `warning` or `error`.
    """

    image: Annotated[str, Meta(min_length=1)]
    namespace: Annotated[str, Meta(pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    pull_policy: Annotated[str, Meta(pattern="^(Always|IfNotPresent|Never)$")] = "IfNotPresent"
    pull_secrets: str = ""
    policy: str = "on-demand"
    acquire_s: Annotated[float, Meta(ge=1, le=3600)] = 120.0
    runtime_class: Annotated[str, Meta(pattern=f"^$|{_NAME}")] = ""
    priority_class: Annotated[str, Meta(pattern=f"^$|{_NAME}")] = ""
    card_command: str = ""
    kubeconfig: str = IN_CLUSTER
    lease_name: Annotated[str, Meta(pattern=_NAME)] = "plimsoll-pool"
    lease_s: Annotated[int, Meta(ge=1, le=60)] = 3
    instance: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,253}$")] = "pool"
    http_address: str = "127.0.0.1"
    http_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    log_level: LogLevel = "info"

    @property
    def template(self) -> Template:
        """The reservations of this pool."""
        return Template(
            namespace=self.namespace,
            image=self.image,
            pull_policy=self.pull_policy,
            pull_secrets=tuple(one for one in self.pull_secrets.replace(",", " ").split() if one),
            runtime_class=self.runtime_class,
            priority_class=self.priority_class,
            card=tuple(shlex.split(self.card_command)) or CARD,
        )


def load(environment: Mapping[str, str]) -> Settings:
    """Read and check the settings.

    Raises:
        InputError: a setting is unreadable, out of bounds, unknown, or cannot work; several in a group.
    """
    return settings.load(
        Settings,
        environment,
        PREFIX,
        checks={"kubeconfig": check_kubeconfig, "policy": release_policy_of, "card_command": _check_words},
        rules=[_check_image],
    )


def _check_words(variable: str, text: str) -> None:
    try:
        shlex.split(text)
    except ValueError as error:
        raise InputError(variable, text, f"cannot be read ({error})", "close every quote") from error


def _check_image(given: Settings) -> None:
    if given.image != given.image.strip() or " " in given.image:
        raise InputError(PREFIX + "IMAGE", given.image, "is no image", "give a name without spaces")
