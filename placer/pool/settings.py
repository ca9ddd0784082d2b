"""The pool controller's settings: one frozen record, read once from the environment when it starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from placer.pool.core.release_policy import release_policy_of
from placer.pool.reservations import Template
from plimsoll.kube.kubeconfig import IN_CLUSTER, ClusterSettings, check_kubeconfig
from plimsoll.part import settings
from plimsoll.part.errors import InputError
from plimsoll.part.settings import ProcessSettings

PREFIX: Final = "PLIMSOLL_POOL_"

_NAME: Final = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings, ClusterSettings):
    """Each field is read from `PLIMSOLL_POOL_` and its name in capitals.

    Attributes:
        image: the image of reservation pods, Plimsoll's own: it has `sleep`, and the program that
            names the GPU.
        pull_policy: `Always`, `IfNotPresent` or `Never`.
        pull_secrets: the names of Secrets of `namespace` for the registry, with commas.
        namespace: the namespace of the reservation pods. The placer has the same under the same name.
        policy: when idle GPUs are given back: `on-demand`, `reservation(n)` or `hybrid(n, s)`, see docs/pool.md.
        runtime_class: the runtime class that brings GPUs into reservation pods. Empty: the nodes' default runtime.
        priority_class: the priority class of reservation pods, above that of native pods. Empty: none.
    """

    image: Annotated[str, Meta(min_length=1)]
    namespace: Annotated[str, Meta(pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    pull_policy: Annotated[str, Meta(pattern="^(Always|IfNotPresent|Never)$")] = "IfNotPresent"
    pull_secrets: str = ""
    policy: str = "on-demand"
    runtime_class: Annotated[str, Meta(pattern=f"^$|{_NAME}")] = ""
    priority_class: Annotated[str, Meta(pattern=f"^$|{_NAME}")] = ""
    kubeconfig: str = IN_CLUSTER

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
        checks={"kubeconfig": check_kubeconfig, "policy": release_policy_of},
        rules=[_check_image],
    )


def _check_image(given: Settings) -> None:
    if given.image != given.image.strip() or " " in given.image:
        raise InputError(PREFIX + "IMAGE", given.image, "is no image", "give a name without spaces")
