"""The live page's files, and the headers that make the page safe.

What always holds: the files come from this package and nowhere else, so the page works without the internet. The
policy in `HEADERS` lets a browser run and load these files alone, and lets no text become HTML (Trusted Types). So a
hostile name of a pod, a node or a model is text, whatever it holds.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

FOLDER: Final = Path(__file__).parent / "page"
PREFIX: Final = "/page/"

TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again by its ETag, so that a new placer's page is a new page
}


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page, with its ETag."""

    body: bytes
    content_type: str
    etag: str


def load() -> dict[str, File]:
    """The files by name. Blocks."""
    return {path.name: _file(path) for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}


def routes(files: Mapping[str, File]) -> list[web.RouteDef]:
    """The page at `/`, and each of its files."""
    pages = [web.get("/", _handler(files["index.html"]))]
    return pages + [web.get(PREFIX + name, _handler(file)) for name, file in files.items()]


def _file(path: Path) -> File:
    body = path.read_bytes()
    return File(body, TYPES[path.suffix], hashlib.blake2b(body, digest_size=16).hexdigest())


def _handler(file: File) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        if any(known.value in {file.etag, "*"} for known in request.if_none_match or ()):
            response = web.Response(status=304, headers=HEADERS)
        else:
            response = web.Response(
                body=file.body, content_type=file.content_type, charset="utf-8", headers=HEADERS
            )
            response.enable_compression()
        response.etag = file.etag
        return response

    return answer
