"""The OpenAPI document in the repository is the one that the placer serves."""

import re
from pathlib import Path

from plimsoll.placer_api import openapi
from plimsoll.placer_api.routes import ROUTES

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_document_is_that_of_the_code() -> None:
    """`docs/openapi.json` is up to date: `python -m plimsoll.placer_api.openapi > docs/openapi.json` writes it."""
    assert DOCUMENT.read_bytes() == openapi.encoded()


def test_each_route_is_named_once_and_names_its_path() -> None:
    """Operations are unique, and each name in a path is described."""
    assert len({route.operation for route in ROUTES}) == len(ROUTES)
    for route in ROUTES:
        assert re.findall(r"{(\w+)}", route.path) == [name for name, _ in route.path_texts]
