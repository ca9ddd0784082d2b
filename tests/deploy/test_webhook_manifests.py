"""The webhook's files can be applied as they are shipped."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from placer.webhook.app import CONFIGURATIONS, SECRET, SERVICE
from plimsoll.dialects import Json
from tests.servers.apiserver import ApiServer
from tests.servers.objects import pod_manifest
from tests.servers.waiting import until

DEPLOY = Path(__file__).parents[2] / "deploy"
OWN = "plimsoll-system"


@pytest.fixture
async def applied(apiserver: ApiServer) -> AsyncIterator[dict[str, Json]]:
    """Both files, applied with kubectl; the objects of the first by their kind."""
    text = await asyncio.to_thread((DEPLOY / "webhook.yaml").read_text)
    dialects = await asyncio.to_thread((DEPLOY / "webhook-dialects.yaml").read_text)
    objects = {one["kind"]: one for one in yaml.safe_load_all(text)}
    try:
        await apiserver.kubectl("apply", "--filename=-", "--validate=strict", stdin=text)
        await apiserver.kubectl("apply", "--filename=-", "--validate=strict", stdin=dialects)
        yield objects
    finally:
        for manifest in (dialects, text):
            arguments = ("delete", "--ignore-not-found", "--wait=false", "--filename=-")
            await apiserver.kubectl(*arguments, stdin=manifest)
        await apiserver.purge()

        async def out_of_force() -> bool:
            probe = pod_manifest("probe", {"plimsoll.dev/gpu": "1"})
            return (
                await apiserver.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", probe)
            ).status < 400

        # All tests share the API server, so a webhook left behind would refuse the next test's pods.
        await until(out_of_force)


async def test_the_files_apply_and_their_pods_are_admitted(
    apiserver: ApiServer, applied: dict[str, Json]
) -> None:
    """All fields are known, all conditions compile, and Pod Security's `restricted` takes the Deployment's pods.

    A webhook that does not run yet stops none of its own pods.
    """
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await apiserver.must("PATCH", f"/api/v1/namespaces/{OWN}", restricted)
    template = applied["Deployment"]["spec"]["template"]
    # No controller makes the account here, and the plugin that would look for it is off.
    body = {**template, "metadata": {**template["metadata"], "name": "webhook-1"}}
    stored = await apiserver.must("POST", f"/api/v1/namespaces/{OWN}/pods", body)
    assert stored["spec"]["schedulerName"] == "default-scheduler"
    configuration = await apiserver.get(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/plimsoll-webhook"
    )
    policies = {one["name"].partition(".")[0]: one["failurePolicy"] for one in configuration["webhooks"]}
    assert policies == {"gpus": "Fail", "others": "Ignore", "annotations": "Ignore", "debugging": "Fail"}


def test_names_are_those_of_the_code() -> None:
    """The rights name the Secret and the configurations of the code, and the Service is the certificate's."""
    objects = list(yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text()))
    objects += yaml.safe_load_all((DEPLOY / "webhook-dialects.yaml").read_text())
    named = {
        name for one in objects for rule in one.get("rules", ()) for name in rule.get("resourceNames", ())
    }
    assert named == {SECRET, *CONFIGURATIONS}
    hooks = [one for one in objects if one["kind"] == "MutatingWebhookConfiguration"]
    assert {one["metadata"]["name"] for one in hooks} == set(CONFIGURATIONS)
    services = {webhook["clientConfig"]["service"]["name"] for one in hooks for webhook in one["webhooks"]}
    assert services == {SERVICE}
