"""The placer's settings: one frozen record, read once from the environment when it starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from placer.api.access import TokenFile
from placer.core.policies import policy_named
from placer.extender.tls import TlsFiles
from plimsoll.bus.settings import StreamSettings, check_bus
from plimsoll.kube.kubeconfig import ClusterSettings, check_kubeconfig
from plimsoll.part import settings
from plimsoll.part.errors import InputError
from plimsoll.part.settings import PREFIX, ProcessSettings
from plimsoll.redis_client import check_redis_url

HttpAuth = Literal["none", "token", "kubernetes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings, StreamSettings, ClusterSettings):
    """Each field is read from `PLIMSOLL_` and its name in capitals.

    Attributes:
        redis_url: the sorted list; `redis://`, `rediss://` or `unix://`, or the sentinels that know the master:
            `redis+sentinel://host:26379,host:26379/master/0`.
        instance: the name of this placer among those that run at the same time: letters, digits, `-` and `_`.
        policy: the policy for pods that name none.
        http_host: the address or name by which other placers of the cluster reach that port; those that follow pass
            on to the one that leads what it alone can answer. Empty: `http_address`, unless that stands for all.
        http_auth: the readers there: `none` (everybody who reaches the port), `token` (holders of the token in
            `http_token_file`), or `kubernetes` (users of the cluster who may `get` the URL's path). Health and the
            files of the live page are open in any case.
        http_token_file: path of the file with that token; a new token in it is in force at once. Empty: none.
        control_socket: path of a UNIX socket that serves the same and takes pods for the local front end, for its
            owner alone. Empty: none.
        on_violation: what happens to a pod that passes its line in spite of enforcement: `report`, `evict`, or
            `evict-all` for pods of other schedulers too, see docs/operations.md.
        violation_grace_s: the time for which reports must show such a pod past its line, in seconds.
        relocation: `off`, `dry-run` (reports which pods it would move for a waiting pod) or `on`, see
            docs/relocation.md.
        relocation_after_s: the time for which a pod waits before others are moved for it, in seconds.
        relocation_per_hour: the most pods of one owner that are moved within an hour.
        relocation_spare_gpus: the number of whole GPUs to keep free by moving pods together; 0: none.
        lease_namespace: the namespace of the Lease `plimsoll-placer`, which at most one placer of the cluster holds:
            the one that places. Empty: the pod's own, or `kube-system` outside of the cluster. Give all placers of
            one cluster the same.
        lease_s: whole seconds for which the Lease is good. When the placer that places dies, another one goes on
            after this time and a fifth of it. A placer that cannot write for this time may lose the Lease to another,
            and then starts again: give 3 or more where its event loop or the API server stands still for a second.
        pool_namespace: the namespace in which the pool's controller keeps its reservation pods, see docs/pool.md.
            With it, GPUs outside of the pool have no room. Empty: there is no pool, and all GPUs that monitors report
            may be used.
        unheld_pods: pods with a container that asks for a GPU and has no pages or library in its own spec, so that
            nothing would hold it: `refuse`, or `place` where placing alone is wanted.
        extender_port: the TCP port at `http_address` at which kube-scheduler may use the placer as its extender; none
            is served without it. 0 takes a free port, which the log names.
        extender_certificate, extender_key: paths of PEM files for TLS there. Empty: plain HTTP.
        extender_client_ca: path of a PEM file with the authority of client certificates. Beyond loopback it must be
            given.
        extender_clients: the common names of the client certificates that may use the extender, with commas. It is
            of use with `extender_client_ca` alone. Empty: every certificate of that authority.
        local_nodes: path of a JSON list of `placer.local.runner.LocalNode`; with it, the placer places pods from
            the control socket on these nodes. Empty: none.
    """

    redis_url: str = "redis://127.0.0.1:6379/0"
    instance: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] = "placer"
    policy: str = "headroom"
    http_host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:_-]{0,253}$")] = ""
    http_auth: HttpAuth = "none"
    http_token_file: str = ""
    control_socket: str = ""
    on_violation: Annotated[str, Meta(pattern="^(report|evict|evict-all)$")] = "report"
    violation_grace_s: Annotated[float, Meta(ge=1, le=86400)] = 60.0
    relocation: Annotated[str, Meta(pattern="^(off|dry-run|on)$")] = "off"
    relocation_after_s: Annotated[float, Meta(ge=1, le=86400)] = 60.0
    relocation_per_hour: Annotated[int, Meta(ge=1, le=1000)] = 6
    relocation_spare_gpus: Annotated[int, Meta(ge=0, le=100_000)] = 0
    lease_namespace: Annotated[str, Meta(pattern="^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$")] = ""
    lease_s: Annotated[int, Meta(ge=1, le=60)] = 1
    pool_namespace: Annotated[str, Meta(pattern="^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$")] = ""
    unheld_pods: Annotated[str, Meta(pattern="^(refuse|place)$")] = "refuse"
    extender_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    extender_certificate: str = ""
    extender_key: str = ""
    extender_client_ca: str = ""
    extender_clients: str = "system:kube-scheduler"
    local_nodes: str = ""

    @property
    def places_locally(self) -> bool:
        """Whether the placer has local nodes alone."""
        return bool(self.local_nodes) and not self.kubeconfig

    @property
    def extender_tls(self) -> TlsFiles:
        """The files for TLS at the extender's port."""
        return TlsFiles(self.extender_certificate, self.extender_key, self.extender_client_ca)


def load(environment: Mapping[str, str]) -> Settings:
    """Read and check the settings.

    Raises:
        InputError: a setting is unreadable, out of bounds, unknown, or cannot work; several in a group.
    """
    return settings.load(
        Settings,
        environment,
        checks={
            "policy": lambda variable, name: policy_named(name, variable),
            "nats_url": check_bus,
            "redis_url": check_redis_url,
            "kubeconfig": check_kubeconfig,
        },
        rules=[_check_extender, _check_http_auth, lambda given: given.nats_access.check()],
    )


def _check_extender(given: Settings) -> None:
    if given.extender_port is None:
        return
    if given.places_locally:
        remedy = "leave it out, or schedule for Kubernetes"
        raise InputError(PREFIX + "EXTENDER_PORT", given.extender_port, "needs a cluster", remedy)
    given.extender_tls.check(given.http_address)


def _check_http_auth(given: Settings) -> None:
    if given.http_auth == "token":
        if not given.http_token_file:
            remedy = f"name the file with the token in {PREFIX}HTTP_TOKEN_FILE"
            raise InputError(PREFIX + "HTTP_AUTH", given.http_auth, "has no token", remedy)
        TokenFile(Path(given.http_token_file)).read()
    elif given.http_token_file:
        remedy = f"set {PREFIX}HTTP_AUTH to token, or leave the file out"
        raise InputError(PREFIX + "HTTP_TOKEN_FILE", given.http_token_file, "would protect nothing", remedy)
    if given.http_auth == "kubernetes" and given.places_locally:
        remedy = "schedule for Kubernetes, or use a token"
        raise InputError(PREFIX + "HTTP_AUTH", given.http_auth, "needs a cluster", remedy)
