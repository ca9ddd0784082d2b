"""`plimsoll convert` changes the pods of a manifest, wherever they stand, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from plimsoll.dialects.gpushare import Gpushare
from plimsoll.dialects.hami import Hami
from plimsoll.dialects.kai import Kai
from plimsoll.dialects.manifest import convert
from plimsoll.part.errors import InputError

ALL = (Hami(), Gpushare(), Kai())
MANIFEST = """\
# A comment.
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {nvidia.com/gpumem: "1", mode: "0644", answer: "yes"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: serve}}
    spec:
      containers:
        - name: main
          image: serve
          resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 4000, memory: 1Gi}}
---
---
apiVersion: v1
kind: List
items:
  - apiVersion: batch/v1
    kind: CronJob
    metadata: {name: nightly}
    spec:
      schedule: "0 0 * * *"
      jobTemplate:
        spec:
          template:
            spec:
              restartPolicy: Never
              containers: [{name: a, image: i, resources: {requests: {aliyun.com/gpu-mem: 2}}}]
  - apiVersion: v1
    kind: Pod
    metadata: {name: plain}
    spec: {containers: [{name: a, image: i}]}
  - apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {name: train}
    spec:
      pytorchReplicaSpecs:
        Worker:
          template:
            metadata: {annotations: {gpu-memory: "2000"}}
            spec: {schedulerName: kai-scheduler, containers: [{name: pytorch, image: i}]}
"""


def test_every_pod_template_is_converted() -> None:
    """Deployments, CronJobs in a List, and templates of other projects; all else keeps its values."""
    text, changes = convert(MANIFEST, ALL)
    config, deployment, listed = yaml.safe_load_all(text)
    assert config == next(iter(yaml.safe_load_all(MANIFEST)))
    spec = deployment["spec"]["template"]["spec"]
    assert spec["schedulerName"] == "plimsoll"
    assert spec["containers"][0]["resources"] == {
        "limits": {"memory": "1Gi", "plimsoll.dev/gpu-memory": "4000Mi"}
    }
    assert deployment["spec"]["replicas"] == 3
    nightly, plain, train = listed["items"]
    job = nightly["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert job["containers"][0]["resources"] == {"limits": {"plimsoll.dev/gpu-memory": "2Gi"}}
    assert plain["spec"] == {"containers": [{"name": "a", "image": "i"}]}
    worker = train["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert worker["metadata"]["annotations"] == {}
    assert worker["spec"]["containers"][0]["resources"]["limits"]["plimsoll.dev/gpu-memory"] == "2000Mi"
    theirs, ours = "nvidia.com/gpu: 1, nvidia.com/gpumem: 4000", "plimsoll.dev/gpu-memory: 4000Mi"
    assert changes[:2] == [
        f"Deployment/serve: spec.containers[main].resources: {theirs} became {ours}",
        "Deployment/serve: spec.schedulerName: default-scheduler became plimsoll",
    ]
    assert [change.split(":")[0] for change in changes[2:]] == [
        *("CronJob/nightly", "CronJob/nightly", "PyTorchJob/train", "PyTorchJob/train")
    ]


AS_WRITTEN = """\
apiVersion: v1
kind: Pod
metadata:
  name: train
  labels: {commit: "123e456", short: '7e10', mode: "0o17"}
  annotations: {window: 22:30:00, at: 2020-01-01T00:00:00Z, day: 2020-01-01}
spec:
  containers:
  - name: main
    image: train
    env:
    - name: LEARNING_RATE
      value: "1e-4"
    args: ["y", 'on', --at, "12:30", --octal, 0o17]
    resources:
      limits:
        nvidia.com/gpu: "1"
        nvidia.com/gpumem: "3000"
        memory: 1Gi
"""


def test_a_text_stands_as_it_was_written() -> None:
    """Quotes stay where kubectl needs them, and times and dates without quotes stay texts."""
    text, changes = convert(AS_WRITTEN, ALL)
    assert len(changes) == 2
    unchanged = [
        line for line in AS_WRITTEN.splitlines() if "nvidia.com" not in line and "window" not in line
    ]
    assert set(unchanged) <= set(text.splitlines())
    assert "{window: '22:30:00', at: '2020-01-01T00:00:00Z', day: 2020-01-01}" in text
    assert '        plimsoll.dev/gpu-memory: "3000Mi"\n' in text


def test_pods_that_share_parts_by_aliases() -> None:
    """Each pod is converted and written out, although they share a part; aliases of aliases are refused at once."""
    shared = """\
kind: List
items:
- kind: Pod
  metadata: {name: one}
  spec: &spec
    containers: [{name: a, image: i, resources: {limits: {aliyun.com/gpu-mem: 2}}}]
- kind: Pod
  metadata: {name: other}
  spec: *spec
"""
    text, changes = convert(shared, ALL)
    one, other = yaml.safe_load(text)["items"]
    assert one["spec"] == other["spec"]
    assert one["spec"]["schedulerName"] == "plimsoll"
    assert [change.split(":")[0] for change in changes] == ["Pod/one"] * 2 + ["Pod/other"] * 2
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 20))
    bomb = f"l0: &l0 [x]\n{levels}kind: ConfigMap\n"
    with pytest.raises(InputError, match="more than 1000000 values with its aliases written out"):
        convert(bomb, ALL)


def test_a_converted_manifest_has_nothing_to_convert() -> None:
    """The output put in again comes out as it was."""
    text, _ = convert(MANIFEST, ALL)
    assert convert(text, ALL) == (text, [])


NEGATIVE = """\
kind: Pod
metadata: {name: x}
spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpumem: -1}}}]}
"""


CONTAINER = "{{name: a, resources: {{limits: {{{0}: 2}}}}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kind: Pod\nmetadata: {name: x}\nspec: {containers: ["
            + CONTAINER.format("volcano.sh/vgpu-number")
            + "]}",
            r"^Pod/x: spec.containers\[a\].resources\[volcano.sh/vgpu-number\]: 2 is Volcano's and is not translated",
        ),
        (
            "kind: List\nitems: [{kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: ["
            + CONTAINER.format("nvidia.com/vgpu-number")
            + "]}}}}]",
            r"^Job/j: .*nvidia.com/vgpu-number\]: 2 is vgpu-manager's",
        ),
        (
            "kind: Deployment\nmetadata: {name: d, annotations: {gpu-fraction: '0.5'}}\nspec: {}",
            r"^Deployment/d: metadata.annotations\[gpu-fraction\]: '0.5' is KAI's .*annotations of the pod template",
        ),
        (
            "kind: Workflow\nmetadata: {name: w}\nspec: {templates: [{container: "
            + CONTAINER.format("nvidia.com/gpumem")
            + "}]}",
            r"^Workflow/w: .*limits\[nvidia.com/gpumem\]: '2' is HAMi's, and stands in no pod",
        ),
        (
            "kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {requests.nvidia.com/gpumem: 2}}",
            r"^ResourceQuota/q: spec.hard\[requests.nvidia.com/gpumem\]",
        ),
        (
            "kind: Pod\nmetadata: {name: x, annotations: {nvidia.com/use-gputype: A100}}\nspec: {containers: ["
            + CONTAINER.format("nvidia.com/gpu")
            + "]}",
            r"use-gputype\]: 'A100' is HAMi's",
        ),
        (
            "kind: Pod\nmetadata: {name: x, annotations: {gpu-fraction: '0.5'}}\nspec: {containers: ["
            + CONTAINER.format("nvidia.com/gpu")
            + "]}",
            r"^Pod/x: .*nvidia.com/gpu\]: 2 asks NVIDIA's device plugin",
        ),
        (
            "kind: Job\nmetadata: {name: v}\nspec: {schedulerName: volcano, tasks: [{template: {spec: {containers: ["
            + CONTAINER.format("nvidia.com/gpumem")
            + "]}}}]}",
            r"^Job/v: schedulerName: 'volcano' is given for all pods",
        ),
        (
            "kind: Pod\nmetadata: {name: x}\nspec: {nodeName: n1, containers: ["
            + CONTAINER.format("nvidia.com/gpumem")
            + "]}",
            r"^Pod/x: spec.nodeName: 'n1' is set by the pod's author, .*select the node by spec.nodeSelector",
        ),
        (
            "kind: Service\nmetadata: {name: k}\nspec: {template: {spec: {containers: ["
            + CONTAINER.format("nvidia.com/gpumem").replace("name: a, ", "")
            + "]}}}",
            r"^Service/k: spec.containers\[0\]: '' is no pod \(Object missing required field `name`\); give a pod",
        ),
        ("kind: A\nspec:\n\ta: 1", r"^manifest line 3: '\\ta: 1' is no YAML .*; indent by spaces"),
        ("kind: A\nname: {{ .Name }}", r"^manifest line 2: .*; render the template first"),
        ("kind: A\nkind: B", r"^manifest line 2: 'kind: B' is no YAML \(the key 'kind' is given twice\)"),
        ('{"kind": "A", "kind": "B"}', r"^manifest line 1: .*the key 'kind' is given twice"),
        ("a: [", "^manifest line 1: .*is no YAML"),
        ("hello", "^manifest: 'hello' is no object; give Kubernetes objects"),
        ("kind: A\n---\n7", "^manifest: '7' is no object"),
        ("a: &a [*a]", "is nested too deeply"),
        (
            NEGATIVE,
            r"Pod/x: spec.containers\[a\].*'?-1'? is negative",
        ),
        ("kind: Pod\nmetadata: {name: x}\nspec: {containers: [7]}", "Pod/x: .*is no pod"),
        ("kind: Pod\nmetadata: {annotations: 3}\nspec: {containers: [{}]}", "is no pod"),
    ],
)
def test_what_cannot_be_converted_is_refused(text: str, message: str) -> None:
    """The error is one line with the object's name, and no half-converted output appears."""
    with pytest.raises(InputError, match=message):
        convert(text, ALL)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        "[]",
        "a: {spec: {containers: []}}",
        "spec: {containers: [" + CONTAINER.format("nvidia.com/gpu") + "]}",
        "spec: {containers: [" + CONTAINER.format("nvidia.com/mig-1g.5gb") + "]}",
        "kind: ResourceQuota\nspec: {hard: {requests.nvidia.com/gpu: 2}}",
    ],
)
def test_a_manifest_without_requests_of_other_schedulers_is_kept(text: str) -> None:
    """A pod without a GPU, or with those of NVIDIA's device plugin alone, does not change."""
    converted, changes = convert(text, ALL)
    assert not changes
    assert list(yaml.safe_load_all(converted)) == [one for one in yaml.safe_load_all(text) if one is not None]


ASKS = "{{name: a, image: i, resources: {{limits: {{nvidia.com/gpumem: {0}}}}}}}"


@pytest.mark.parametrize(
    "text",
    [
        "spec: &s {containers: [" + ASKS.format(8) + "]}",
        "kind: Pod\r\nspec:\r\n  containers:\r\n  - " + ASKS.format(8) + "\r\n",
        "\ufeffkind: A\n---\n\ufeffkind: Pod\nspec: {containers: [" + ASKS.format(8) + "]}\n---\n---\n",
        "kind: List\nitems:\n- kind: Pod\n  spec: &s {containers: ["
        + ASKS.format(8)
        + "]}\n- kind: Pod\n  spec: {<<: *s, restartPolicy: Never}",
        "spec: {containers: [&b " + ASKS.format(8) + ", {<<: *b, name: b}], initContainers: [*b]}",
        "spec: {containers: [{name: a, resources: {limits: &r {nvidia.com/gpumem: 8}, requests: *r}}]}",
    ],
)
def test_each_way_of_yaml_is_read(text: str) -> None:
    """Line ends and marks of Windows, empty documents, merged mappings and aliases; the last are written out."""
    done, changes = convert(text, ALL)
    assert "nvidia.com/gpumem: 8 became plimsoll.dev/gpu-memory: 8Mi" in changes[0]
    assert "nvidia.com" not in done
    assert "plimsoll.dev/gpu-memory" in done
    assert not {"&", "*", "<<", "\r", "\ufeff"} & set(done.split())
    assert convert(done, ALL)[0] == done


def test_json_stays_json() -> None:
    """Texts stay as they are, and several objects stand one behind the other again."""
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p\u00e9\U0001f600", "annotations": {"a": "1e-4", "b": "a/b\t\u0001"}},
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpumem": 8}}}], "x": None},
    }
    config = {"kind": "ConfigMap", "data": {"n": "no"}, "list": [1.5, True, {}], "items": []}
    for text in (json.dumps([pod, config]), json.dumps(pod, indent="\t") + "\n" + json.dumps(config)):
        done, changes = convert(text, ALL)
        parts = (
            json.loads(done) if text[0] == "[" else json.loads("[" + done.replace("\n}\n{", "\n},{") + "]")
        )
        assert len(changes) == 2
        assert parts[1] == config
        assert parts[0]["metadata"] == pod["metadata"]
        assert parts[0]["spec"]["schedulerName"] == "plimsoll"
        assert parts[0]["spec"]["containers"][0]["resources"] == {
            "limits": {"plimsoll.dev/gpu-memory": "8Mi"}
        }


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("hami-scheduler", "plimsoll"),
        ("kai-scheduler", "plimsoll"),
        ("mine", "mine"),
        ("plimsoll", "plimsoll"),
    ],
)
def test_a_pod_that_only_names_the_scheduler_is_converted(name: str, becomes: str) -> None:
    """Once that scheduler is gone, a pod without a GPU would wait for it as well."""
    done, changes = convert(f"spec: {{schedulerName: {name}, containers: [{{name: a}}]}}", ALL)
    assert yaml.safe_load(done)["spec"]["schedulerName"] == becomes
    assert bool(changes) == (name != becomes)


def test_the_command(tmp_path: Path) -> None:
    """YAML goes to standard output, changes to standard error, and a refusal ends with 2 and no output."""
    file = tmp_path / "m.yaml"
    file.write_text(MANIFEST)
    command = [sys.executable, "-m", "plimsoll", "convert"]
    done = subprocess.run(
        [*command, str(file), "--gpushare-unit", "MiB"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr.splitlines()) == convert(MANIFEST, (Hami(), Gpushare("MiB"), Kai()))
    refused = subprocess.run([*command, "-"], capture_output=True, text=True, check=False, input="a: [")
    assert (refused.returncode, refused.stdout) == (2, "")
    missing = subprocess.run([*command, str(tmp_path / "no")], capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert "FILE: " in missing.stderr
