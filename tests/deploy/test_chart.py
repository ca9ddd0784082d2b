"""The chart renders manifests that Kubernetes knows, and refuses values that cannot work."""

import dataclasses
import json

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

import monitor.settings
import placer.pool.settings
import placer.settings
import placer.webhook.settings
import plimsoll_alerts.settings
from plimsoll.part import settings as part_settings
from tests.deploy.rendering import (
    CASES,
    EVERYTHING,
    OUTSIDE,
    Object,
    environment,
    named,
    objects,
    templates,
)
from tests.slow import quick_and_slow
from tools.chart import BASE, CHART, DEPLOY, outputs
from tools.settings import PARTS

VERSIONS = ("1.32", "1.33", "1.34", "1.35", "1.36")
EACH_VERSION = quick_and_slow((VERSIONS[0], VERSIONS[-1]), VERSIONS[1:-1])
SCRAPED = {"serviceMonitor": {"enabled": True}}
CUSTOM = {"ServiceMonitor", "PrometheusRule"}  # kinds of the Prometheus operator, without a schema here


def fields(part: str) -> set[str]:
    """The settings of a part, in lower case."""
    return {field.name for field in dataclasses.fields(PARTS[part][1])}


@pytest.mark.parametrize("version", EACH_VERSION)
@pytest.mark.parametrize("case", CASES)
def test_helm_lint_finds_nothing(case: str, version: str) -> None:
    """`helm lint` has no warning and no error. Its only recommendation is an icon."""
    report = helm.lint(str(CHART), dict(CASES[case]), strict=True, kube_version=f"v{version}.0")
    assert not report["errors"]
    assert [one["error"] for one in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("version", EACH_VERSION)
@pytest.mark.parametrize("case", CASES)
def test_manifests_meet_the_schemas_of_kubernetes(case: str, version: str) -> None:
    """Every object has a schema in this version, and meets it strictly, without fields of other versions."""
    for one in objects(CASES[case]):
        if one["kind"] not in CUSTOM:
            kubernetes_validate.validate(one, version, strict=True)


def test_an_unknown_field_would_be_seen() -> None:
    """The validation above is not vacuous: a misspelt field fails it."""
    one = json.loads(json.dumps(named({}, "Deployment", "plimsoll-placer")))
    one["spec"]["template"]["spec"]["containers"][0]["volumemounts"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, VERSIONS[0], strict=True)


def test_kubernetes_before_1_32_is_refused() -> None:
    """The chart names the oldest Kubernetes that it works on."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == ">=1.32.0-0"
    assert VERSIONS[0] == "1.32"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("part", PARTS)
def test_every_variable_is_a_setting(case: str, part: str) -> None:
    """A part knows every variable of ours that the chart gives it, and reads all values that it is given."""
    prefix, kind = PARTS[part]
    given = {
        name: value
        for name, value in environment(CASES[case], f"plimsoll-{part}").items()
        if name.startswith("PLIMSOLL_")
    }
    bus = {"PLIMSOLL_NATS_URL"} if part == "alerts" else set()  # that of all parts, with their prefix
    assert {name.removeprefix(prefix).lower() for name in given.keys() - bus} <= fields(part)
    made_up = {"PLIMSOLL_NODE": "n1", "PLIMSOLL_INSTANCE": "p1", "PLIMSOLL_NATS_URL": "nats://h:4222"}
    made_up |= {"PLIMSOLL_BROKER_NODE": "n1"}
    made_up |= {"PLIMSOLL_HTTP_HOST": "10.0.0.1"}
    known = {name: value if isinstance(value, str) else made_up[name] for name, value in given.items()}
    if part == "broker":
        part_settings.load(kind, known, prefix)
    elif part == "webhook":
        placer.webhook.settings.load(known)
    elif part == "monitor":
        monitor.settings.load(known)
    elif part == "pool" and given:
        placer.pool.settings.load(known)
    elif part == "alerts" and given:
        plimsoll_alerts.settings.load(known)


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_can_be_given(part: str) -> None:
    """`settings` in the schema names each setting of the part once, less those that the chart itself gives.

    A placer on a cluster has no use for those of local nodes.
    """
    schema = json.loads((CHART / "values.schema.json").read_text())
    offered = set(schema["properties"][part]["properties"]["settings"]["properties"])
    prefix = PARTS[part][0]
    given = {
        name.removeprefix(prefix).lower()
        for values in CASES.values()
        for name in environment(values, f"plimsoll-{part}")
        if name.startswith(prefix)
    } - {setting for values in CASES.values() for setting in values.get(part, {}).get("settings", {})}
    needless = {
        "placer": {"lease_namespace", "control_socket", "local_nodes"},
        "webhook": {"kubeconfig"},
        "monitor": set(),
        "broker": {"measure", "users_lock"},
        "pool": {"kubeconfig"},
        "alerts": set(),
    }[part]
    assert offered == fields(part) - given - needless


def test_each_node_has_the_brokers_of_one_pool() -> None:
    """A node with a pool's label has a broker with that enforcement, and no second one; all others have the first."""
    brokers = {
        name: template["spec"]
        for name, template in templates(EVERYTHING)
        if name.startswith("plimsoll-broker")
    }
    terms = {
        name: spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        for name, spec in brokers.items()
    }
    rules = {name: term["nodeSelectorTerms"][0]["matchExpressions"][0] for name, term in terms.items()}
    label = "plimsoll.dev/enforcement"
    assert rules == {
        "plimsoll-broker": {"key": label, "operator": "NotIn", "values": ["both", "driver"]},
        "plimsoll-broker-both": {"key": label, "operator": "In", "values": ["both"]},
        "plimsoll-broker-driver": {"key": label, "operator": "In", "values": ["driver"]},
    }
    given = {name: environment(EVERYTHING, name)["PLIMSOLL_BROKER_ENFORCEMENT"] for name in brokers}
    assert list(given.values()) == ["preload", "both", "driver"]


def test_whole_numbers_stay_whole() -> None:
    """Helm reads numbers as floats; a part gets 250000000000, not 2.5e+11."""
    given = environment(EVERYTHING, "plimsoll-placer")
    assert given["PLIMSOLL_STREAM_MAX_BYTES"] == "250000000000"
    assert given["PLIMSOLL_VIOLATION_GRACE_S"] == "30"
    monitored = environment(EVERYTHING, "plimsoll-monitor")
    assert monitored["PLIMSOLL_STREAM_MAX_BYTES"] == "250000000000"
    assert monitored["PLIMSOLL_OVERCOMMIT_RATIO"] == "1.5"
    assert environment(EVERYTHING, "plimsoll-broker")["PLIMSOLL_BROKER_WAIT_LONGEST_S"] == "1000000"


WORKLOADS = ("placer", "webhook", "pool", "alerts", "monitor", "broker", "nats", "redis")


def test_each_part_takes_the_fields_of_its_pods() -> None:
    """Users, labels, annotations and places of every part are values, and the chart's own labels stay."""
    affinity: Object = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    own: Object = {"podLabels": {"team": "gpu", "app": "mine"}, "podAnnotations": {"a": "b"}}
    own |= {"securityContext": {"runAsUser": 1000660000, "runAsGroup": None, "fsGroup": None}}
    own |= {"resources": {"limits": {"memory": "7Gi"}}}
    placed = {
        "affinity": affinity,
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"operator": "Exists"}],
    }
    values: Object = {
        part: {**own, **({} if part in {"monitor", "broker"} else placed)} for part in WORKLOADS
    }
    for part in ("pool", "alerts"):
        values[part] |= {"enabled": True}
    values["alerts"] |= {"alertmanagerUrl": "http://am:9093"}
    values |= {"commonLabels": {"cost": "7", "app.kubernetes.io/name": "mine"}}
    found = dict(templates(values))
    assert found.keys() == {f"plimsoll-{part}" for part in WORKLOADS}
    for part in WORKLOADS:
        metadata, spec = found[f"plimsoll-{part}"]["metadata"], found[f"plimsoll-{part}"]["spec"]
        labels = {"team": "gpu", "cost": "7", "app": f"plimsoll-{part}", "app.kubernetes.io/name": "plimsoll"}
        assert metadata["labels"].items() >= labels.items()
        assert metadata["annotations"]["a"] == "b"
        assert spec["securityContext"]["runAsUser"] == 1000660000
        assert spec["securityContext"].keys().isdisjoint({"runAsGroup", "fsGroup"})
        assert spec["containers"][0]["resources"]["limits"] == {"memory": "7Gi"}
        if part not in {"monitor", "broker"}:
            assert {name: spec[name] for name in placed} == placed
    assert all(one["metadata"]["labels"]["cost"] == "7" for one in objects(values))


def test_each_account_takes_annotations() -> None:
    """A cloud's identities are given to accounts by annotations."""
    given = {"eks.amazonaws.com/role-arn": "arn:x"}
    parts = ("placer", "webhook", "pool", "monitor", "broker")
    values: Object = {part: {"serviceAccountAnnotations": given} for part in parts}
    values["pool"] |= {"enabled": True}
    for part in parts:
        assert named(values, "ServiceAccount", f"plimsoll-{part}")["metadata"]["annotations"] == given


def test_every_container_has_a_limit_of_memory() -> None:
    """A part that leaks ends before its node does."""
    for _, template in templates(EVERYTHING):
        assert all("memory" in one["resources"]["limits"] for one in template["spec"]["containers"])


def test_helm_test_asks_the_doctor() -> None:
    """`helm test` runs one pod, and nothing of it is installed before."""
    hooks = [one for one in objects({}) if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    assert {one["metadata"]["name"] for one in hooks} == {"plimsoll-test"}
    [pod] = [one for one in hooks if one["kind"] == "Pod"]
    assert pod["spec"]["containers"][0]["command"][:4] == ["python", "-m", "plimsoll", "doctor"]
    assert "plimsoll-test" not in (BASE / "plimsoll.yaml").read_text()


@pytest.mark.parametrize("url", ["", "https://wiki.example.com/gpu"])
def test_runbooks_are_where_the_value_says(url: str) -> None:
    """Rules and service name the pages by one value; without it, by their paths in the repository."""
    values = {"runbookUrl": url, "prometheusRule": {"enabled": True}}
    rules = [one for one in objects(values) if one["kind"] == "PrometheusRule"]
    alerts = [
        rule for one in rules for group in one["spec"]["groups"] for rule in group["rules"] if "alert" in rule
    ]
    assert len(alerts) > 20
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"{url or 'docs/runbooks'}/{rule['alert']}.md"
        assert url or (CHART.parents[1] / rule["annotations"]["runbook_url"]).exists()
    service = {**values, "alerts": {"enabled": True, "alertmanagerUrl": "http://am:9093"}}
    given = environment(service, "plimsoll-alerts")
    assert given["PLIMSOLL_ALERTS_RUNBOOK_URL"] == url


def test_a_digest_wins_over_a_tag() -> None:
    """An image is named by registry, repository, and digest or tag."""
    by_digest = dict(templates(EVERYTHING))["plimsoll-placer"]["spec"]
    assert by_digest["containers"][0]["image"] == "registry.example.com/gpu/plimsoll@sha256:" + "0" * 64
    assert by_digest["imagePullSecrets"] == [{"name": "my-registry"}]
    by_address = dict(templates({"image": {"registry": "[2001:db8::1]:5000"}}))["plimsoll-placer"]["spec"]
    assert by_address["containers"][0]["image"] == "[2001:db8::1]:5000/plimsoll:0.1.0"
    assert dict(templates({}))["plimsoll-broker"]["spec"]["containers"][0]["image"] == "plimsoll-node:0.1.0"


def test_dialects_and_extender_reach_the_webhook() -> None:
    """A way of asking that is turned on has both its condition and its setting."""
    given = environment(EVERYTHING, "plimsoll-webhook")
    assert given["PLIMSOLL_WEBHOOK_EXTENDED_SCHEDULERS"] == "default-scheduler"
    assert (given["PLIMSOLL_WEBHOOK_HAMI"], given["PLIMSOLL_WEBHOOK_GPUSHARE"]) == ("true", "GiB")
    assert given["PLIMSOLL_WEBHOOK_NAMES"] == "192.0.2.2"
    configuration = named(EVERYTHING, "MutatingWebhookConfiguration", "plimsoll-webhook-dialects")
    assert len(configuration["webhooks"]) == 3
    assert all(
        one["clientConfig"] == {"url": "https://192.0.2.2:8443/review"} for one in configuration["webhooks"]
    )


def test_parts_of_the_node_leave_no_node_that_is_taken_out() -> None:
    """No taint, label that opts out, or pressure ends broker and monitor: pods there must still end."""
    for name, template in templates({}):
        if name in {"plimsoll-monitor", "plimsoll-broker"}:
            spec = template["spec"]
            assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
            assert "affinity" not in spec
            assert spec["tolerations"] == [{"operator": "Exists"}]
            assert spec["priorityClassName"] == "system-node-critical"
            assert spec["runtimeClassName"] == "nvidia"
    values: Object = {"nodes": {"priorityClassName": ""}}
    assert {template["spec"]["priorityClassName"] for _, template in templates(values)} == {"plimsoll"}


@pytest.mark.parametrize("case", CASES)
def test_no_pod_gets_variables_of_services(case: str) -> None:
    """For the Service `plimsoll-webhook`, Kubernetes would set PLIMSOLL_WEBHOOK_PORT, which is a setting of ours."""
    for _, template in templates(CASES[case]):
        assert template["spec"]["enableServiceLinks"] is False


def test_passwords_come_from_secrets() -> None:
    """No password stands in a workload, and servers of one's own are reached by one's own Secret."""
    assert environment({}, "plimsoll-placer")["PLIMSOLL_NATS_URL"].startswith(
        "nats://placer:$(NATS_PASSWORD)@"
    )
    assert environment({}, "plimsoll-monitor")["PLIMSOLL_NATS_URL"].startswith(
        "nats://monitor:$(NATS_PASSWORD)@"
    )
    assert environment(EVERYTHING, "plimsoll-placer")["PLIMSOLL_REDIS_URL"].startswith(
        "rediss://:$(REDIS_PASSWORD)@"
    )
    own = environment(OUTSIDE, "plimsoll-monitor")["PLIMSOLL_NATS_URL"]
    assert own == {"secretKeyRef": {"name": "bus", "key": "monitor-url"}}
    assert not [one for one in objects(OUTSIDE) if one["kind"] == "Secret"]


def test_generated_files_are_those_of_the_chart() -> None:
    """The base for kustomize and the files of `deploy/` are the chart's; `python -m tools.chart` writes them."""
    for path, text in outputs().items():
        assert path.read_text() == text, f"{path} differs: run python -m tools.chart"


def test_kube_scheduler_is_sent_to_the_charts_service() -> None:
    """The address in kube-scheduler's configuration is that of the Service, and its port the extender's."""
    [extender] = yaml.safe_load((DEPLOY / "kube-scheduler-extender.yaml").read_text())["extenders"]
    service = named(EVERYTHING, "Service", "plimsoll-placer")
    [port] = [one["port"] for one in service["spec"]["ports"] if one["name"] == "extender"]
    namespace = service["metadata"]["namespace"]
    assert extender["urlPrefix"] == f"https://plimsoll-placer.{namespace}.svc:{port}/extender/v1"


def test_prometheus_shows_its_token_to_the_placer_alone() -> None:
    """Where the placer asks for a token, a scrape of its own sends one, and the other parts get none."""

    def monitors(values: Object) -> dict[str, Object]:
        found = [one for one in objects({**values, **SCRAPED}) if one["kind"] == "ServiceMonitor"]
        return {one["metadata"]["name"]: one["spec"] for one in found}

    assert list(monitors({})) == ["plimsoll"]
    secret = {"name": "s", "key": "token"}
    for auth, sent in (
        ({"auth": "token", "tokenSecret": "s"}, {"authorization": {"credentials": secret}}),
        (
            {"auth": "kubernetes"},
            {"bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"},
        ),
    ):
        both = monitors({"placer": auth})
        [rest], [own] = (both[name]["endpoints"] for name in ("plimsoll", "plimsoll-placer"))
        assert own == {**rest, **sent}
        operators = [one["selector"]["matchExpressions"][0]["operator"] for one in both.values()]
        assert operators == ["NotIn", "In"]
