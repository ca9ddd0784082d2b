"""`plimsoll doctor --bundle`: it has what a bug report needs, and none of the secrets that were planted."""

import base64
import json
import tarfile
from pathlib import Path

import pytest

from plimsoll.bus.access import BusAccess
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.doctor.bundle import without_secrets
from plimsoll_cli.doctor.secrets import Secrets
from tests.placer.arrivals import bus, publish, report
from tests.placer.live.world import serving
from tests.plimsoll_cli.doctor.test_command import doctor
from tests.plimsoll_cli.top.fleet import fleet
from tests.servers.apiserver import ApiServer

PASSWORD = "hush-very-secret"  # noqa: S105 - planted
SEED = "SUACH75SWCM5D2JMJM6EKLR2WDARVGZT4QC6LX3AGHSWOMVAKERABBBRWM"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwbGltc29sbCJ9.c2lnbmF0dXJl"  # noqa: S105 - planted
PEM = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEG\n-----END PRIVATE KEY-----"


def files_of(path: Path) -> dict[str, str]:
    """The texts in an archive, by their names."""
    with tarfile.open(path) as archive:
        texts = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {
            name.removeprefix("plimsoll-bundle/"): file.read().decode()
            for name, file in texts.items()
            if file
        }


@pytest.mark.parametrize(
    "text",
    [
        f"nats://placer:{PASSWORD}@nats:4222",
        f"redis://:p@ss:{PASSWORD}@redis:6379/0?x=1",
        f'{{"password": "{PASSWORD}"}}',
        f'{{"msg": "{{\\"nats_token\\": \\"{PASSWORD}\\"}}"}}',
        f"NATS_PASSWORD={PASSWORD} other=1",
        f"--token {PASSWORD}",
        f"client_secret: '{PASSWORD}'",
        f"Authorization: Bearer {PASSWORD}",
        f"Authorization: Basic {base64.b64encode(PASSWORD.encode()).decode()}",
        f"jwt {TOKEN} end",
        f"seed {SEED}",
        PEM,
        PEM.replace("\n", "\\n"),
        (
            f"-----BEGIN NATS USER JWT-----\n{TOKEN}\n------END NATS USER JWT------\n"
            f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------"
        ),
    ],
)
def test_secrets_are_found_by_their_form(text: str) -> None:
    """In URLs, JSON, JSON in JSON, options, variables, headers, and files of keys; no secret was named before."""
    cleaned = Secrets(()).removed(text)
    for secret in (PASSWORD, base64.b64encode(PASSWORD.encode()).decode(), SEED, TOKEN, "MIGHAgEAMBMGByq"):
        assert secret not in cleaned, cleaned


def test_what_is_no_secret_stays() -> None:
    """Names, figures, addresses and states, which a report is about."""
    for text in (
        "gpu-pool-a-9 8Gi/24Gi 30%",
        "http://127.0.0.1:8080/v1/nodes",
        "pod team/trainer waits: no room",
    ):
        assert Secrets(("hush",)).removed(text) == text


def test_secrets_that_were_given_are_removed_everywhere(tmp_path: Path) -> None:
    """The password of a URL, also as it is decoded, the lines of a private file, and a seed in a file's place."""
    key = tmp_path / "user.nk"
    key.write_text("plain-text-that-nobody-would-know-by-its-form\n")
    access = BusAccess(nkey=str(key), credentials="inline-credentials-text")
    secrets = Secrets.of(["nats://u:a%2Fb-1234@h:1"], access, {"MY_API_KEY": "abcd-efgh", "HOME": "/root"})
    text = "a%2Fb-1234 a/b-1234 plain-text-that-nobody-would-know-by-its-form inline-credentials-text abcd-efgh /root"
    assert secrets.removed(text).replace("(removed)", "").split() == ["/root"]


def test_objects_lose_the_values_of_variables() -> None:
    """Values that stand in a manifest go, references stay; so do copies of the manifest in annotations."""
    given = {
        "metadata": {
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": PASSWORD, "kept": "yes"},
            "managedFields": [1],
        },
        "spec": {
            "containers": [{"env": [{"name": "A", "value": PASSWORD}, {"name": "B", "valueFrom": {"x": 1}}]}]
        },
    }
    assert without_secrets(given) == {
        "metadata": {"annotations": {"kept": "yes"}},
        "spec": {
            "containers": [
                {"env": [{"name": "A", "value": "(removed)"}, {"name": "B", "valueFrom": {"x": 1}}]}
            ]
        },
    }


async def test_a_bundle_of_real_parts_has_no_planted_secret(
    tmp_path: Path, nats: EmbeddedServer, apiserver: ApiServer, namespace: str
) -> None:
    """Findings, state, events and the release's objects are there; URL, pod and variable are clean in them."""
    path = tmp_path / "out" / "bundle.tar.gz"
    path.parent.mkdir()
    container = {
        "name": "main",
        "image": "x",
        "args": [f"--password={PASSWORD}"],
        "env": [{"name": "X", "value": PASSWORD}],
    }
    await apiserver.must(
        "POST",
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "metadata": {"name": "plimsoll-monitor-1", "annotations": {"example.com/token": PASSWORD}},
            "spec": {"containers": [container], "automountServiceAccountToken": False},
        },
    )
    async with bus(nats) as jetstream, serving(await fleet()) as url:
        await publish(jetstream, report("bundled-node"))
        code, out, err = await doctor(
            tmp_path,
            *("--bundle", str(path), "--placer", url, "--kubeconfig", str(apiserver.kubeconfig("admin"))),
            *("-n", namespace, "--nats-url", nats.url.replace("://", f"://user:{PASSWORD}@")),
        )
    files = files_of(path)
    assert f"{path}: {len(files)} files" in err
    assert {
        "findings.txt",
        "machine.yaml",
        "placer/metrics.txt",
        "cluster/pods.yaml",
        "missing.txt",
    } <= files.keys()
    assert json.loads(files["placer/state.json"])["nodes"]
    assert "bundled-node" in files["events.jsonl"]
    assert "plimsoll-monitor-1" in files["cluster/pods.yaml"]
    assert not [name for name, text in files.items() if PASSWORD in text]
    assert PASSWORD not in out + err
    assert path.stat().st_mode & 0o777 == 0o600
    code, _, err = await doctor(tmp_path, "--bundle", str(path))
    assert (code, "cannot be written (File exists); name a file that does not exist" in err) == (2, True)
    assert [one.name for one in path.parent.iterdir()] == ["bundle.tar.gz"]
