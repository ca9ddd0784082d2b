"""The Compose file for one machine is a Compose file, and gives the parts settings that they know."""

import json
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

import hook.broker.settings
import monitor.settings
from plimsoll.part import settings
from tools.chart import DEPLOY

COMPOSE: Final = DEPLOY / "compose"
SCHEMA: Final = Path(__file__).parent / "vendored" / "compose-spec.json"


def document() -> dict[str, Any]:
    """The Compose file."""
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    return found


def test_it_meets_the_schema() -> None:
    """The specification's own schema takes it, and would refuse a misspelt field."""
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    given = document()
    validator.validate(given)
    given["services"]["broker"]["volume"] = []
    with pytest.raises(jsonschema.ValidationError, match="volume"):
        validator.validate(given)


def test_parts_take_their_settings() -> None:
    """Broker and monitor accept the variables, once Compose has put in the node's name."""
    services = document()["services"]
    broker = services["broker"]["environment"]
    assert settings.load(hook.broker.settings.Settings, broker, "PLIMSOLL_BROKER_").http_port == 8083
    given = {**services["monitor"]["environment"], "PLIMSOLL_NODE": "machine"}
    loaded = monitor.settings.load(given)
    assert (loaded.http_port, loaded.broker_root) == (8082, "/var/lib/plimsoll")
    known = {name.removeprefix("PLIMSOLL_").lower() for name in given}
    assert known <= set(monitor.settings.Settings.__dataclass_fields__)


def test_prometheus_reads_the_parts() -> None:
    """Prometheus asks the ports that the parts serve, and Grafana asks Prometheus."""
    [job] = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["broker:8083", "monitor:8082"]}]
    [source] = yaml.safe_load((COMPOSE / "grafana" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_no_port_is_open_to_the_network() -> None:
    """Ports are those of people's own browser on this machine."""
    for service in document()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
