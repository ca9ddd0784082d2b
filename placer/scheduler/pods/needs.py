"""The amounts, ports and mounts that a pod takes of its node while it lives there. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from placer.core.mounts import NO_MOUNTS, Mounts, mounts_of
from placer.core.requests import Amounts, effective_requests, is_sidecar
from plimsoll.kube.models import Pod

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, never listened on


class HostPort(NamedTuple):
    """A port of the node that a container opens."""

    protocol: str
    address: str
    port: int

    @property
    def number(self) -> tuple[str, int]:
        """The port on any address."""
        return self.protocol, self.port


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources of its node that a pod takes while it lives there.

    Attributes:
        amounts: by resource; CPU in thousandths, the others in their own unit.
        ports: the ports of the node that the pod opens.
        mounts: the volumes that tie the pod to nodes.
    """

    amounts: Amounts
    ports: frozenset[HostPort]
    mounts: Mounts = NO_MOUNTS


def needs_of(pod: Pod) -> Needs:
    """The resources of its node that a pod takes.

    Raises:
        InputError: an amount is no quantity, or negative.
    """
    return Needs(effective_requests(pod), frozenset(_host_ports(pod)), mounts_of(pod))


def _host_ports(pod: Pod) -> Iterable[HostPort]:
    sidecars = [container for container in pod.spec.initContainers or () if is_sidecar(container)]
    for container in [*pod.spec.containers, *sidecars]:
        for port in container.ports or ():
            # The API server fills in the host port of pods on the host's network. A plain manifest lacks it.
            number = port.hostPort or (port.containerPort if pod.spec.hostNetwork else None)
            if number:
                yield HostPort(port.protocol or "TCP", port.hostIP or ANY_ADDRESS, number)
