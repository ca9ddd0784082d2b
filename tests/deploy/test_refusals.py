"""The chart refuses values that cannot work, before anything is installed, with field, value and remedy."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

from plimsoll.bus.stream import MAX_BYTES
from tests.deploy.rendering import EVERYTHING, Object, objects, texts
from tools.chart import CHART

OWN_NATS = {"enabled": False, "external": {"url": "nats://192.0.2.1:4222"}}


def external(name: str, value: str) -> Object:
    """Values with a NATS of one's own, which `enabled` contradicts."""
    return {"nats": {"external": {name: value}}}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"placer": {"settings": {"policies": "binpack"}}}, "additional properties 'policies' not allowed"),
        ({"placer": {"settings": {"nats_url": "nats://x"}}}, "additional properties 'nats_url' not allowed"),
        ({"placr": {}}, "additional properties 'placr' not allowed"),
        ({"image": {"digest": "latest"}}, "/image/digest"),
        ({"kubelet": {"directory": "/var/lib/kubelet/"}}, "/kubelet/directory"),
        ({"nodeDirectory": "/var/lib/../plimsoll"}, "/nodeDirectory"),
        ({"apiServer": {"host": "https://192.0.2.1"}}, "/apiServer/host"),
        ({"nodes": {"enforcementLabel": "plimsoll.dev/node=off"}}, "/nodes/enforcementLabel"),
        ({"nodes": {"enforcementLabel": "-node"}}, "/nodes/enforcementLabel"),
        ({"nodes": {"enforcementLabel": "a/b/c"}}, "/nodes/enforcementLabel"),
        ({"nodes": {"selector": {"pool": "with space"}}}, "/nodes/selector/pool"),
        (
            {"placer": {"nodeSelector": {"a b": "c"}}},
            "at '/placer/nodeSelector': additional properties 'a b'",
        ),
        ({"webhook": {"excludedNamespaces": ["Team A"]}}, "/webhook/excludedNamespaces/0"),
        ({"stream": {"replicas": 2}}, "/stream/replicas"),
        ({"gpuAccess": "cdi"}, "/gpuAccess"),
        ({"enforcement": "library"}, "/enforcement"),
        ({"enforcementPools": ["nvml"]}, "/enforcementPools/0"),
        ({"webhook": {"url": "http://192.0.2.1/review"}}, "/webhook/url"),
        ({"pool": {"policy": "reservation"}}, "/pool/policy"),
        ({"placer": {"auth": "basic"}}, "/placer/auth"),
        (
            {"placer": {"env": [{"name": "A", "value": True}]}},
            "'/placer/env/0/value': got boolean, want string",
        ),
        ({"broker": {"env": [{"name": "A", "value": 5}]}}, "'/broker/env/0/value': got number, want string"),
        ({"monitor": {"env": [{"value": "a"}]}}, "'/monitor/env/0': missing property 'name'"),
        (
            {"nats": {"tolerations": [{"key": "gpu", "value": True}]}},
            "'/nats/tolerations/0/value': got boolean, want string",
        ),
        (
            {"monitor": {"volumes": [{"name": "x", "hostPath": {"path": 5}}]}},
            "/monitor/volumes/0/hostPath/path",
        ),
        ({"pool": {"volumeMounts": [{"name": "x"}]}}, "missing property 'mountPath'"),
        ({"alerts": {"resources": {"memory": "1Gi"}}}, "additional properties 'memory' not allowed"),
        ({"redis": {"podLabels": {"team": 7}}}, "/redis/podLabels/team"),
        ({"webhook": {"securityContext": {"runAsUser": "1000"}}}, "/webhook/securityContext/runAsUser"),
        ({"runbookUrl": "runbooks"}, "/runbookUrl"),
        ({"placer": {"settings": {"policy": "spread"}}}, "'/placer/settings/policy': value must be one of"),
        (
            {"placer": {"settings": {"lease_s": 0}}},
            "'/placer/settings/lease_s': minimum: got 0, want 1",
        ),
        (
            {"placer": {"settings": {"violation_grace_s": "1s"}}},
            "'/placer/settings/violation_grace_s': '1s' does not match pattern",
        ),
        ({"monitor": {"settings": {"heartbeat_s": 10**9}}}, "'/monitor/settings/heartbeat_s': maximum: got"),
        ({"broker": {"settings": {"wait_policy": "lifo"}}}, "'/broker/settings/wait_policy': value must be"),
        ({"alerts": {"settings": {"kinds": "gpu.fire"}}}, "'/alerts/settings/kinds': 'gpu.fire' does not"),
        ({"alerts": {"alertmanagerUrl": "http://a:99999"}}, "/alerts/alertmanagerUrl"),
        ({"alerts": {"alertmanagerUrl": "http://:9093"}}, "/alerts/alertmanagerUrl"),
        ({"stream": {"maxAgeS": 10**12}}, "'/stream/maxAgeS': maximum: got"),
        ({"pool": {"policy": "reservation(10000000)"}}, "'/pool/policy': 'reservation(10000000)' does not"),
    ],
)
def test_a_value_of_another_form_is_refused(values: Object, text: str) -> None:
    """The schema names the place of a value that has another form."""
    with pytest.raises(helm.HelmError, match=re.escape(text)):
        texts(values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"image": {"registry": "registry.example.com/"}}, 'image.registry: "registry.example.com/" is no'),
        ({"nodeImage": {"registry": "https://r.example.com"}}, 'nodeImage.registry: "https://r.example.com"'),
        ({"nats": {"image": {"registry": "r e"}}}, 'nats.image.registry: "r e" is no registry; give host'),
        (
            {"image": {"repository": "plimsoll:0.1"}},
            'image.repository: "plimsoll:0.1" is no name of an image',
        ),
        ({"redis": {"image": {"tag": ""}}}, "redis.image.tag: is empty, and so is the digest; give one"),
        ({"placer": {"auth": "token"}}, "placer.tokenSecret: is empty with placer.auth=token; name a Secret"),
        (
            {"placer": {"auth": "kubernetes", "tokenSecret": "s"}},
            'placer.tokenSecret: "s" would protect nothing with placer.auth=kubernetes',
        ),
        (
            {"webhook": {"settings": {"certificate_life_s": 5999}}},
            "webhook.settings.certificate_life_s: 5999 is less than 100 times check_s (60); give at least 6000",
        ),
        (
            {
                "placer": {"replicas": 1},
                "extender": {"enabled": True, "tlsSecret": "s", "schedulers": ["plimsoll"]},
            },
            'extender.schedulers: "plimsoll" is the placer\'s own scheduler; leave it out',
        ),
        ({"stream": {"replicas": 3}}, "stream.replicas: 3 is more than nats.replicas (1)"),
        ({"nats": {"enabled": False}}, "nats.external: is needed with nats.enabled=false"),
        ({"redis": {"enabled": False}}, "redis.external: is needed with redis.enabled=false"),
        (external("secret", "bus"), 'nats.external: "bus" is given with nats.enabled=true'),
        (
            {"redis": {"external": {"url": "redis://h"}}},
            'redis.external: "redis://h" is given with redis.enab',
        ),
        (
            {"nats": {**OWN_NATS, "external": {"url": "nats://h", "secret": "bus"}}},
            'nats.external.url: "nats://h" is given beside secret ("bus"), which would win; give one',
        ),
        (
            {"monitorDirectory": "/var/lib/plimsoll"},
            'monitorDirectory: "/var/lib/plimsoll" and nodeDirectory ("/var/lib/plimsoll") share files; give',
        ),
        ({"monitorDirectory": "/var/lib/plimsoll/monitor"}, "share files; give directories"),
        ({"monitorDirectory": "/data", "nodeDirectory": "/data/b"}, "share files; give directories"),
        (
            {"nodeDirectory": "/var/lib/kubelet"},
            'nodeDirectory: "/var/lib/kubelet" holds the kubelet\'s directory ("/var/lib/kubelet"); give',
        ),
        ({"monitorDirectory": "/var", "nodeDirectory": "/opt"}, 'monitorDirectory: "/var" holds the kubelet'),
        (
            {
                "monitor": {"hostNetwork": True, "port": 9000},
                "broker": {"hostNetwork": True, "port": 9000},
            },
            "monitor.port: 9000 is also broker.port, on the network of a node (hostNetwork); give another",
        ),
        (
            {"placer": {"hostNetwork": True, "port": 8222}, "nats": {"hostNetwork": True}},
            "placer.port: 8222 is also NATS's health port, on the network of a node",
        ),
        ({"webhook": {"httpPort": 8443}}, "webhook.port: 8443 is also webhook.httpPort, in the same pod"),
        ({"nats": {"port": 8222}}, "nats.port: 8222 is also NATS's health port, in the same pod"),
        (
            {"stream": {"maxBytes": 4 * 1024**3}},
            "nats.storage.size: 5Gi is too little for a stream of 4294967296 bytes (stream.maxBytes)",
        ),
        ({"nats": {"storage": {"size": "1500M"}}}, "nats.storage.size: 1500M is too little"),
        (
            {"extender": {"enabled": True, "tlsSecret": "tls"}},
            "placer.replicas: 2 must be 1 with extender.enabled",
        ),
        ({"extender": {"enabled": True}, "placer": {"replicas": 1}}, "extender.tlsSecret: is needed"),
        ({"priorityClass": {"name": ""}}, "priorityClass.name: is needed"),
        (
            {"pool": {"enabled": True, "namespace": "plimsoll-system"}},
            'pool.namespace: "plimsoll-system" must differ',
        ),
        ({"alerts": {"enabled": True}}, "alerts.alertmanagerUrl: is needed with alerts.enabled"),
        ({"nats": {"hostNetwork": True, "replicas": 3}}, "nats.hostNetwork: works with one server alone"),
    ],
)
def test_values_that_cannot_work_together_are_refused(values: Object, text: str) -> None:
    """Each is refused in a sentence with the field and the remedy."""
    with pytest.raises(helm.HelmError, match=re.escape(text)) as refused:
        texts(values)
    assert "nil pointer" not in str(refused.value)


def test_a_refusal_shows_no_password() -> None:
    """The URL of a server may hold a password, with any character in it, and options that are secret."""
    for url in ("nats://u:open?sesame@host", "nats://u:a//open@sesame@host", "nats://host?token=sesame"):
        with pytest.raises(helm.HelmError, match=r"nats\.external: .*…") as refused:
            texts(external("url", url))
        assert not re.search("open|sesame", str(refused.value))


@pytest.mark.parametrize(
    "values",
    [
        {
            "image": {"registry": "registry.example.com:5000/gpu/team"},
            "nodeImage": {"registry": "[::1]:5000"},
        },
        {"image": {"repository": "registry.example.com:5000/plimsoll"}},
        {"monitorDirectory": "/var/lib/plimsoll2", "nodeDirectory": "/var/lib/kubelet/plimsoll"},
        {"monitor": {"port": 9000}, "broker": {"port": 9000}},  # each pod has a network of its own
        {"nats": OWN_NATS, "stream": {"maxBytes": 10**12}},  # a NATS of one's own has a disk of its own
        {"nodes": {"selector": {"nvidia.com/gpu.present": None}}},
    ],
)
def test_values_that_work_are_taken(values: Object) -> None:
    """The refusals above accept values that work."""
    assert texts(values)


def test_the_smallest_volume_for_the_stream() -> None:
    """The chart's default for the stream is the parts' own, and its volume may be ten sevenths of that."""
    least_mib = MAX_BYTES * 10 // 7 // 1024**2 + 1
    assert texts({"nats": {"storage": {"size": f"{least_mib}Mi"}}})
    with pytest.raises(helm.HelmError, match=f"too little for a stream of {MAX_BYTES} bytes"):
        texts({"nats": {"storage": {"size": f"{least_mib - 1}Mi"}}})


def resolved(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part of the schema behind its reference."""
    reference = node.get("$ref")
    return schema["$defs"][reference.rpartition("/")[2]] if reference else node


def may_be_null(
    schema: Mapping[str, Any], node: Mapping[str, Any], values: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    """The paths of all values that the schema does not require."""
    for name, value in values.items():
        child = resolved(schema, node["properties"][name])
        if name not in node.get("required", ()):
            yield (name,)
        elif isinstance(value, dict) and "properties" in child:
            yield from ((name, *rest) for rest in may_be_null(schema, child, value))


def nulls(path: tuple[str, ...]) -> Object:
    """Values in which one value is null."""
    first, *rest = path
    return {first: nulls(tuple(rest)) if rest else None}


def test_null_is_refused_or_means_nothing() -> None:
    """Null takes a default away. The schema requires all that has a form; mappings of free form may be missing."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    free = {"selector", "nodeSelector", "resources", "settings", "podAnnotations", "updateStrategy", "labels"}
    free |= {"seLinuxOptions", "securityContext", "affinity"}
    free |= {"commonLabels", "podLabels", "serviceAccountAnnotations"}
    paths = list(may_be_null(schema, schema, defaults))
    assert {path[-1] for path in paths} == {*free, "maxBytes", "maxAgeS"}
    everything = json.loads(json.dumps(EVERYTHING))
    for *sections, name in paths:
        inner = everything
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = None
    for one in objects(everything):
        if one["kind"] not in {"ServiceMonitor", "PrometheusRule"}:
            kubernetes_validate.validate(one, "1.36", strict=True)


@pytest.mark.parametrize(
    "path",
    [
        ("nats",),
        ("image",),
        ("broker",),
        ("redis", "external"),
        ("monitor", "port"),
        ("nats", "image", "tag"),
    ],
)
def test_null_is_refused_by_its_name(path: tuple[str, ...]) -> None:
    """A section or a value that is taken away is named; the template engine never meets it."""
    with pytest.raises(helm.HelmError, match=re.escape(f"missing property '{path[-1]}'")):
        texts(nulls(path))


def test_names_of_digits_stay_names() -> None:
    """A legal name that YAML would read as a number is still a text in the manifests."""
    values: Object = {
        "runtimeClass": "1",
        "priorityClass": {"name": "2"},
        "nodes": {"enforcementLabel": "4"},
        "enforcementPools": ["both"],
        "credentials": {"secret": "5"},
        "certificateAuthority": {"secret": "6", "key": "7"},
        "extender": {"enabled": True, "tlsSecret": "8"},
        "placer": {"replicas": 1},
        "pool": {"enabled": True, "namespace": "9"},
        "alerts": {"enabled": True, "alertmanagerUrl": "http://16"},
        "nats": {"tlsSecret": "10", "storage": {"className": "11"}},
        "redis": {"enabled": False, "external": {"secret": "12", "key": "13"}},
        "dashboards": {"enabled": True, "label": "14"},
    }
    for one in (*objects(values), *objects({**values, "redis": {"tlsSecret": "15"}})):
        kubernetes_validate.validate(one, "1.36", strict=True)
    given: Object = {"secret": "1", "placerKey": "2", "monitorKey": "3", "alertsKey": "4"}
    for one in objects({"nats": {"enabled": False, "external": given}}):
        kubernetes_validate.validate(one, "1.36", strict=True)
