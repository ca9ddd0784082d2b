"""The documents about events are those of the code, and other tools read them."""

import json
from pathlib import Path

import jsonschema

from plimsoll import asyncapi
from plimsoll.bus.subjects import (
    foreign_subject,
    gpu_subject,
    info_subject,
    limit_subject,
    pod_subject,
    pool_subject,
    state_subject,
    task_subject,
)
from plimsoll.events import LIMIT_EVENTS, Phase
from plimsoll.ids import NodeName

DOCUMENTS = Path(__file__).parents[2] / "docs" / "events"
NODE = NodeName("{node}")


def test_the_documents_are_those_of_the_code() -> None:
    """`docs/events` is up to date: `python -m plimsoll.asyncapi docs/events` writes it."""
    found = {str(path.relative_to(DOCUMENTS)): path for path in DOCUMENTS.rglob("*.json")}
    assert {name: path.read_bytes() for name, path in found.items()} == asyncapi.files()


def test_every_subject_is_one_on_which_parts_publish() -> None:
    """The channels are the subjects of all task, node, GPU, limit, pod and pool events."""
    phases = (Phase.STARTED, Phase.LOADED, Phase.EXITED)
    of_nodes = {task_subject(phase.value, NODE) for phase in phases} | {state_subject(NODE)}
    of_nodes |= {gpu_subject(what, NODE) for what in ("health", "pressure")} | {info_subject(NODE)}
    of_nodes |= {limit_subject(what, NODE) for what in LIMIT_EVENTS} | {foreign_subject(NODE)}
    of_pods = {pod_subject(what) for what in ("placed", "unplaceable", "foreign", "preempted", "relocated")}
    of_pool = {pool_subject(what) for what in ("acquired", "released", "lost")}
    assert {kind.subject for kind in asyncapi.KINDS} == of_nodes | of_pods | of_pool


def test_every_schema_is_one() -> None:
    """Each schema keeps JSON Schema's own rules, and each reference in the AsyncAPI document leads somewhere."""
    for path in (DOCUMENTS / "schemas").glob("*.json"):
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))
    document = json.loads((DOCUMENTS / "asyncapi.json").read_text())
    for reference in references(document):
        place = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def references(part: object) -> list[str]:
    """Every `$ref` in a part of a document."""
    if isinstance(part, dict):
        here = [part["$ref"]] if "$ref" in part else []
        return here + [found for each in part.values() for found in references(each)]
    return [found for each in part for found in references(each)] if isinstance(part, list) else []
