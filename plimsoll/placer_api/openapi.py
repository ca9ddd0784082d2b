"""The OpenAPI document of the placer's HTTP API, made from its table of routes and its types.

`python -m plimsoll.placer_api.openapi` prints it; `docs/openapi.json` is a copy.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from plimsoll.placer_api.routes import MOST_ROWS, REFUSALS, ROUTES, Query, Route, RouteAnswer

_REFERENCE: Final = "#/components/schemas/{name}"

Object = dict[str, Any]
"""A part of the document, in JSON's own types."""


def document() -> Object:
    """The document, in OpenAPI 3.1."""
    bodies = [answer.body for route in ROUTES for answer in _answers(route) if answer.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template=_REFERENCE)
    known = iter(schemas)
    paths: Object = {}
    for route in ROUTES:
        answers = {str(one.status): _answer(one, known, has_etag=route.has_etag) for one in _answers(route)}
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, answers)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Plimsoll placer",
            "version": "v1",
            "description": "By default, anybody who can reach the port may read. With PLIMSOLL_HTTP_AUTH, reads on "
            "the TCP port need a bearer token. Operations with the tag `owner` are served on the control socket "
            "alone, which only its owner can open.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def encoded() -> bytes:
    """The document as it is served and kept in the repository."""
    return msgspec.json.format(msgspec.json.encode(document(), order="sorted"), indent=1) + b"\n"


def _operation(route: Route, answers: Object) -> Object:
    operation: Object = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": ["owner" if route.owner_only else "read"],
        "responses": answers,
    }
    parameters = [*_in_path(route), *map(_in_query, route.query)]
    if route.has_etag:
        text = "ETags; the answer is 304 if the page has one of them."
        parameters.append(_parameter("If-None-Match", "header", text, {"type": "string"}))
    if _is_guarded(route):
        operation["security"] = [{}, {"bearer": []}]
    if parameters:
        operation["parameters"] = parameters
    if route.takes:
        schema = {"type": "string", "description": "Pod manifests; several documents are allowed."}
        operation["requestBody"] = {
            "required": True,
            "content": {content: {"schema": schema} for content in route.takes},
        }
    return operation


def _is_guarded(route: Route) -> bool:
    return not route.owner_only and not route.is_open


def _answers(route: Route) -> tuple[RouteAnswer, ...]:
    """The answers of a path, with those of a placer that asks for a token."""
    known = {one.status for one in route.answers}
    refusals = (one for one in REFUSALS if one.status not in known)
    return (*route.answers, *refusals) if _is_guarded(route) else route.answers


def _in_path(route: Route) -> Iterable[Object]:
    for name, text in route.path_texts:
        yield {**_parameter(name, "path", text, {"type": "string", "minLength": 1}), "required": True}


def _in_query(query: Query) -> Object:
    schema: Object = {"type": "string"}
    if query.default is not None:
        schema = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": query.default}
    return _parameter(query.name, "query", query.text, schema)


def _parameter(name: str, where: str, text: str, schema: Object) -> Object:
    return {"name": name, "in": where, "description": text, "schema": schema}


def _answer(answer: RouteAnswer, schemas: Iterator[Object], *, has_etag: bool) -> Object:
    schema = next(schemas) if answer.body is not None else {"type": "string"}
    described = _content(answer.text, schema, answer.content)
    if has_etag and answer.status in {200, 304}:
        text = "Equal for equal pages, of any placer."
        described["headers"] = {"ETag": {"description": text, "schema": {"type": "string"}, "required": True}}
    return described


def _content(text: str, schema: Object, content: str | None) -> Object:
    return (
        {"description": text}
        if content is None
        else {"description": text, "content": {content: {"schema": schema}}}
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(encoded())
