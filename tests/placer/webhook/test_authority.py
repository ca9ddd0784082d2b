"""Certificates on a real API server: shared, renewed without a restart, and trusted before they are served."""

import asyncio
import json
from base64 import b64decode, b64encode

import pytest

from placer.webhook.authority import KEY, Authority, CertificateObjects
from placer.webhook.core.generations import CertificateTiming, Generation
from plimsoll.kube.client import connect
from tests.placer.webhook.core.pods import container, pod
from tests.placer.webhook.scene import ADMISSION, peer_certificate, scene
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until

SECRET = "certificates"  # noqa: S105 - its name


class Clocked:
    """Authorities over one Secret and configuration, with a clock that the test sets."""

    def __init__(self, namespace: str) -> None:
        self.now_s = 1_800_000_000.0
        self.place = CertificateObjects(namespace, SECRET, (f"test-{namespace}",), frozenset({"127.0.0.1"}))
        self.served: list[Generation] = []

    async def serve(self, generation: Generation) -> None:
        """Remember what is served."""
        self.served.append(generation)

    def authority(self, transport: object) -> Authority:
        """A replica."""
        timing = CertificateTiming(life_s=9000.0, settle_s=600.0)
        return Authority(
            transport,  # type: ignore[arg-type] # a client
            self.place,
            timing,
            60.0,
            lambda: self.now_s,
            self.serve,
            lambda: None,
        )


async def bundle_of(apiserver: ApiServer, name: str) -> list[str]:
    """The CA bundle of each webhook of a configuration."""
    webhooks = (await apiserver.get(f"{ADMISSION}/{name}"))["webhooks"]
    return [b64decode(one["clientConfig"].get("caBundle", "")).decode() for one in webhooks]


async def configure(apiserver: ApiServer, name: str) -> None:
    """A configuration of two webhooks that match nothing."""
    webhooks = [
        {
            "name": f"w{at}.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/review"},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        for at in range(2)
    ]
    await apiserver.must("POST", ADMISSION, {"metadata": {"name": name}, "webhooks": webhooks})


async def test_a_life_on_a_real_api_server(apiserver: ApiServer, namespace: str) -> None:
    """Replicas share what the first one made; both authorities are trusted while certificates change."""
    clocked = Clocked(namespace)
    name = clocked.place.configurations[0]
    await configure(apiserver, name)
    try:
        async with connect(apiserver.kubeconfig()) as transport:
            replicas = [clocked.authority(transport) for _ in range(4)]
            await asyncio.gather(*(one.round() for one in replicas))
            assert len({one.certificate for one in clocked.served}) == 1
            assert [one.missing for one in replicas] == [[]] * 4
            first = clocked.served[-1]
            assert await bundle_of(apiserver, name) == [first.authority] * 2
            seen = []
            for after_s in (5999, 6000, 6599, 6601, 7201):
                clocked.now_s = 1_800_000_000.0 + after_s
                clocked.served.clear()
                await asyncio.gather(*(one.round() for one in replicas))
                [served] = {one.certificate for one in clocked.served}
                bundles = await bundle_of(apiserver, name)
                assert bundles[0] == bundles[1]
                seen.append((served == first.certificate, bundles[0].count("BEGIN")))
            assert seen == [(True, 1), (True, 2), (True, 2), (False, 2), (False, 1)]
    finally:
        await apiserver.must("DELETE", f"{ADMISSION}/{name}")


async def test_a_damaged_secret_is_mended(apiserver: ApiServer, namespace: str) -> None:
    """A Secret that somebody made or damaged gets new certificates, and its other keys stay."""
    clocked = Clocked(namespace)
    path = f"/api/v1/namespaces/{namespace}/secrets"
    data = {KEY: b64encode(b"no json").decode(), "mine": b64encode(b"x").decode()}
    await apiserver.must("POST", path, {"metadata": {"name": SECRET}, "data": data})
    async with connect(apiserver.kubeconfig()) as transport:
        authority = clocked.authority(transport)
        await authority.round()
        assert authority.missing == [f"no MutatingWebhookConfiguration test-{namespace}"]
    stored = (await apiserver.get(f"{path}/{SECRET}"))["data"]
    assert stored["mine"] == data["mine"]
    [kept] = json.loads(b64decode(stored[KEY]))
    assert kept.keys() == {"authority", "certificate", "key"}
    assert kept["certificate"] == clocked.served[-1].certificate


async def test_a_deleted_secret_is_a_renewal(apiserver: ApiServer, namespace: str) -> None:
    """The certificate of the replicas stays trusted until they serve the next one, which they share again."""
    clocked = Clocked(namespace)
    name = clocked.place.configurations[0]
    await configure(apiserver, name)
    try:
        async with connect(apiserver.kubeconfig()) as transport:
            replicas = [clocked.authority(transport) for _ in range(3)]
            await asyncio.gather(*(one.round() for one in replicas))
            first = clocked.served[-1]
            await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")
            seen = []
            for after_s in (0, 599, 601, 1201):
                clocked.now_s = 1_800_000_000.0 + after_s
                clocked.served.clear()
                await asyncio.gather(*(one.round() for one in replicas))
                [served] = {one.certificate for one in clocked.served}
                bundle = (await bundle_of(apiserver, name))[0]
                seen.append((served == first.certificate, bundle.count("BEGIN")))
            assert seen == [(True, 2), (True, 2), (False, 2), (False, 1)]
    finally:
        await apiserver.must("DELETE", f"{ADMISSION}/{name}")


CHECK_S = 0.3
"""A certificate is served some checks after the configuration trusts it: the API server, on a busy machine, learns of
that later than it does otherwise."""


@pytest.mark.slow
async def test_certificates_change_under_load_without_a_refusal(apiserver: ApiServer, namespace: str) -> None:
    """The API server calls the webhook all the while that its certificate changes, and no call fails."""
    async with scene(apiserver, namespace, check_s=CHECK_S, life_s=30.0) as running_scene:
        seen = [await peer_certificate(running_scene.port)]

        async def changed() -> bool:
            stored = await running_scene.create(pod(container()), dry=True)
            assert stored["spec"]["containers"][0]["env"], stored
            now = await peer_certificate(running_scene.port)
            if now not in seen:
                seen.append(now)
            return len(seen) >= 2

        await until(changed)
        assert "plimsoll_webhook_certificate_rotations_total 0" not in await running_scene.text("/metrics")
