"""Events as a stranger reads them: by CloudEvents' own SDK, and by our published schemas."""

import json
from functools import cache
from pathlib import Path

import jsonschema
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.formats.json import JSONFormat

SCHEMAS = Path(__file__).parents[1] / "docs" / "events" / "schemas"


def read(message: bytes) -> BaseCloudEvent:
    """The event, once the SDK has taken it and it has the form of its schema.

    Raises:
        CloudEventValidationError: the SDK refuses an attribute.
        jsonschema.ValidationError: the event is not of its schema.
    """
    event = JSONFormat().read(None, message)
    what = event.get_type().removeprefix("dev.plimsoll.").removesuffix(".v1")
    _validator(what).validate(json.loads(message))
    return event


@cache
def _validator(what: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{what}.json").read_text())
    return jsonschema.Draft202012Validator(schema)
