"""The shipped CSIDriver object."""

import asyncio
from pathlib import Path

from plimsoll.broker.volume import DRIVER
from tests.servers.apiserver import ApiServer

MANIFEST = Path(__file__).parents[2] / "deploy" / "csi-driver.yaml"


async def test_the_driver_object_applies(apiserver: ApiServer) -> None:
    """The API server knows all fields, and serves inline volumes only; the kubelet names the pod to the broker."""
    text = await asyncio.to_thread(MANIFEST.read_text)
    try:
        await apiserver.kubectl("apply", "--filename=-", "--validate=strict", stdin=text)
        spec = (await apiserver.get(f"/apis/storage.k8s.io/v1/csidrivers/{DRIVER}"))["spec"]
    finally:
        await apiserver.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=text)
    assert spec["volumeLifecycleModes"] == ["Ephemeral"]
    assert (spec["podInfoOnMount"], spec["attachRequired"], spec["fsGroupPolicy"]) == (True, False, "None")
