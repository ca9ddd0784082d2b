"""Manifests are read as in Kubernetes, or refused with field, value and remedy."""

import json
import re

import pytest
import yaml

from placer.local.manifest import MANIFEST_BYTES, parse_manifests
from plimsoll.part.errors import InputError

POD = """
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  schedulerName: plimsoll
  restartPolicy: Never
  containers:
    - name: main
      command: [python, train.py]
      resources: {limits: {plimsoll.dev/gpu-memory: 8Gi, plimsoll.dev/gpu-share: 40}}
"""


def changed(**changes: object) -> str:
    """The manifest with some fields of its spec changed."""
    document = yaml.safe_load(POD)
    document["spec"].update(changes)
    return str(yaml.safe_dump(document))


def container(**changes: object) -> str:
    """The manifest with some fields of its container changed."""
    document = yaml.safe_load(POD)
    document["spec"]["containers"][0].update(changes)
    return str(yaml.safe_dump(document))


def test_several_documents_are_read_in_order() -> None:
    """Each document and each item of a List becomes a pod; empty documents are skipped."""
    text = f"{POD}---\n---\n{POD.replace('trainer', 'second')}---\n"
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(POD)]})
    assert [pod.metadata.name for pod in parse_manifests(text + listed)] == ["trainer", "second", "trainer"]


def test_json_is_read() -> None:
    """JSON is YAML, so a manifest in JSON reads the same."""
    text = json.dumps(yaml.safe_load(POD))
    [pod] = parse_manifests(text.encode())
    assert pod.spec.containers[0].command == ["python", "train.py"]


def test_dates_stay_strings() -> None:
    """A string that YAML would read as a date stays the string, as in Kubernetes."""
    [pod] = parse_manifests(container(command=["date"]).replace("- date", "- 2026-01-01"))
    assert pod.spec.containers[0].command == ["2026-01-01"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "manifest: '{' is no YAML .*; mend the document"),
        ("\0", "is no YAML"),
        ("just text", "manifest: 'just text' is no object; write apiVersion, kind, metadata, spec"),
        ("---\n", "holds no pod; give at least one document of kind Pod"),
        ("x" * (MANIFEST_BYTES + 1), "is too long; give at most"),
        ("!!python/object/apply:os.system [true]", "is no YAML"),
        (POD.replace("kind: Pod", "kind: Job"), "kind: 'Job' is not handled locally; write kind: Pod"),
        (POD.replace("trainer", "../../etc"), r"metadata.name: '../../etc' is no name; use lower-case"),
        (POD.replace("{name: trainer}", "{name: 7}"), r"metadata.name: 7 has the wrong type .*; quote it"),
        (
            POD.replace("{name: trainer}", "{name: a, annotations: {plimsoll.dev/best-effort: true}}"),
            r"metadata.annotations\[plimsoll.dev/best-effort\]: True has the wrong type .*; quote it",
        ),
        (changed(containers=[]), "spec.containers: .* is empty; give at least one container"),
        (changed(containers="x"), "spec.containers: 'x' has the wrong type"),
        (changed(schedulerName="default-scheduler"), "spec.schedulerName: .* is another scheduler"),
        (changed(restartPolicy="Always"), "spec.restartPolicy: 'Always' is not handled locally"),
        (changed(volumes=[{"name": "v"}]), "spec.volumes: .* is not handled locally; leave it out"),
        (changed(nodeSelector={"a": "b"}), "spec.nodeSelector: .* is not handled locally; leave it out"),
        (container(command=None), r"spec.containers\[main\].command: None is missing; give the command"),
        (container(volumeMounts=[{"name": "v"}]), r"spec.containers\[main\].volumeMounts: .* is not handled"),
        (
            container(env=[{"name": "A", "valueFrom": {"fieldRef": {}}}]),
            r"spec.containers\[main\].env\[A\].valueFrom: .* is not handled locally; give a value",
        ),
        (container(name="Main"), r"spec.containers\[0\].name: 'Main' is no name"),
    ],
)
def test_what_is_not_handled_is_refused_by_name(text: str, message: str) -> None:
    """Each refusal names field, value and remedy."""
    with pytest.raises(InputError) as refused:
        parse_manifests(text)
    assert re.search(message, str(refused.value), re.DOTALL)
    assert refused.value.remedy


def test_one_bad_document_refuses_all() -> None:
    """A single bad document refuses the whole manifest."""
    with pytest.raises(InputError, match="kind"):
        parse_manifests(f"{POD}---\n{POD.replace('kind: Pod', 'kind: Service')}")
