"""Keeps the certificates: in a Secret that all replicas share, and their authorities in the webhook's configuration.

What always holds: the configuration trusts a new authority before this replica serves its certificate. If several
replicas write the Secret at the same time, one wins, and the others take over what it wrote. While the API server is
away, the last certificate is served on.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from placer.webhook.certificate import from_text, make_generation, to_text
from placer.webhook.core.generations import CertificateTiming, Generation, bundle, next_generations, served
from plimsoll.kube.transport import ApiError, ConflictError, NotFoundError, PatchKind, Transport
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
KEY: Final = "generations.json"
"""The Secret's key."""

ATTEMPTS: Final = 5
"""Writes that another replica may overtake, one after another. More replicas than that do not start at once."""

log = get_logger()


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - the API's name, like every field below


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


class _ClientConfig(msgspec.Struct):
    caBundle: str = ""  # noqa: N815


class _Webhook(msgspec.Struct):
    name: str
    clientConfig: _ClientConfig  # noqa: N815


class _Configuration(msgspec.Struct):
    metadata: _Metadata
    webhooks: list[_Webhook] | None = None


@dataclass(frozen=True, slots=True)
class CertificateObjects:
    """The objects of a cluster that hold certificates.

    Attributes:
        namespace: the Secret's.
        secret: the Secret's name.
        configurations: names of MutatingWebhookConfigurations; one that does not exist is left out.
        names: the DNS names and addresses by which API servers reach the webhook.
    """

    namespace: str
    secret: str
    configurations: tuple[str, ...]
    names: frozenset[str]


@dataclass(slots=True)
class Authority:
    """Makes, shares and renews the certificates.

    Attributes:
        transport: the API server.
        place: the objects.
        timing: the times of a life.
        check_s: seconds between two rounds.
        now_s: the wall clock, in seconds since 1970.
        serve: begins to serve a generation.
        on_failure: called for each round that failed.
        missing: the reason, for people, why API servers cannot trust this webhook yet; empty once they can.
    """

    transport: Transport
    place: CertificateObjects
    timing: CertificateTiming
    check_s: float
    now_s: Callable[[], float]
    serve: Callable[[Generation], Awaitable[None]]
    on_failure: Callable[[], None]
    missing: list[str] = field(default_factory=lambda: ["the certificate is still being made"])
    _known: tuple[Generation, ...] = field(default=(), init=False)  # as of the last round

    async def run(self) -> None:
        """Do a round now, and one after every `check_s`, for ever. After a failure, the next comes sooner."""
        pauses = Pauses(longest_s=self.check_s)
        while True:
            heed_cancellation()
            try:
                await self.round()
            except (ApiError, InputError, msgspec.MsgspecError) as error:
                self.on_failure()
                log.warning("the certificates were not checked, retrying", error=str(error))
                await asyncio.sleep(pauses.next_s())  # the API server may be starting
            else:
                pauses.reset()
                await asyncio.sleep(self.check_s)  # a life has thousands of rounds, so none must be in time

    async def round(self) -> None:
        """Read the Secret, renew it where it is time, make API servers trust it, and serve the right certificate.

        Raises:
            ApiError: the API server refused, or did not answer.
            InputError: other replicas overtook every write.
        """
        now_s = self.now_s()
        kept = await self._generations(now_s)
        found = [name for name in self.place.configurations if await self._trust(name, bundle(kept))]
        await self.serve(served(kept, self.place.names, now_s, self.timing))
        self._known = kept
        self.missing = [] if found else [f"no MutatingWebhookConfiguration {self.place.configurations[0]}"]

    async def _generations(self, now_s: float) -> tuple[Generation, ...]:
        """The generations that hold at `now_s`; the Secret has them once this returns."""
        for _ in range(ATTEMPTS):
            heed_cancellation()
            secret = await self._secret()
            kept = _kept(secret)
            wanted = await asyncio.to_thread(self._wanted, kept, now_s)
            if wanted is kept:
                return kept
            try:
                await self._write(secret, wanted)
            except ConflictError:
                continue  # another replica was first
            log.info("certificates renewed", generations=len(wanted), authorities_before=len(kept))
            return wanted
        raise InputError("Secret", self.place.secret, f"changed {ATTEMPTS} times meanwhile", "wait")

    def _wanted(self, kept: tuple[Generation, ...], now_s: float) -> tuple[Generation, ...]:
        names = self.place.names

        def make() -> Generation:
            return make_generation(names, self.timing.life_s, now_s)

        if not kept and self._known:
            # Somebody deleted the Secret. The certificate that replicas serve stays trusted
            # until they serve the next one.
            return (*self._known, make())
        return next_generations(kept, names, now_s, self.timing, make)

    async def _secret(self) -> _Secret | None:
        try:
            found = await self.transport.get(f"{self._secrets}/{self.place.secret}")
        except NotFoundError:
            return None
        return msgspec.json.decode(found, type=_Secret)

    async def _write(self, before: _Secret | None, wanted: tuple[Generation, ...]) -> None:
        data = {KEY: b64encode(to_text(wanted)).decode()}
        if before is None:
            metadata = {"name": self.place.secret}
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
            await self.transport.post(self._secrets, body)
        else:
            version = {"resourceVersion": before.metadata.resourceVersion}
            path = f"{self._secrets}/{self.place.secret}"
            await self.transport.patch(path, {"metadata": version, "data": data}, PatchKind.MERGE)

    @property
    def _secrets(self) -> str:
        return f"/api/v1/namespaces/{self.place.namespace}/secrets"

    async def _trust(self, name: str, authorities: str) -> bool:
        """Make one configuration trust these authorities; False if there is no such configuration."""
        path, wanted = f"{CONFIGURATIONS}/{name}", b64encode(authorities.encode()).decode()
        for _ in range(ATTEMPTS):
            heed_cancellation()
            try:
                found = msgspec.json.decode(await self.transport.get(path), type=_Configuration)
                others = [one for one in found.webhooks or () if one.clientConfig.caBundle != wanted]
                if others:
                    # Lists of webhooks merge by name, so this changes nothing else of a webhook. The version keeps
                    # a webhook that somebody removes meanwhile from coming back.
                    version = {"resourceVersion": found.metadata.resourceVersion}
                    bundles = [{"name": one.name, "clientConfig": {"caBundle": wanted}} for one in others]
                    body = {"metadata": version, "webhooks": bundles}
                    await self.transport.patch(path, body, PatchKind.STRATEGIC)
                    log.info("the configuration trusts the certificates", configuration=name)
            except ConflictError:
                continue  # another replica wrote the same, or a person wrote something else
            except NotFoundError:
                return False
            return True
        raise InputError("MutatingWebhookConfiguration", name, f"changed {ATTEMPTS} times meanwhile", "wait")


def _kept(secret: _Secret | None) -> tuple[Generation, ...]:
    """The generations of a Secret; none if it has none that can be read."""
    if secret is None or KEY not in (secret.data or {}):
        return ()
    try:
        return from_text(b64decode((secret.data or {})[KEY], validate=True))
    except ValueError:
        log.warning("the Secret is damaged, and new certificates are made")
    except InputError as error:
        log.warning("the Secret is damaged, and new certificates are made", problem=str(error))
    return ()
