"""The page's files: their headers, their ETags, and that none needs anything from elsewhere."""

import re

import aiohttp
import pytest

from placer.live import site
from tests.placer.live.world import serving, world

FILES = site.load()

DEMANDED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
DIRECTIVES = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'"),
    *(
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ),
)


async def test_every_file_is_served_with_the_headers_that_make_the_page_safe() -> None:
    """The page and each file have the policy, a type, and an ETag that is heeded; other paths are refused."""
    made = await world()
    async with serving(made) as url, aiohttp.ClientSession(url) as session:
        for path in ("/", *(site.PREFIX + name for name in FILES)):
            async with session.get(path) as answer:
                assert answer.status == 200
                assert {name: answer.headers[name] for name in DEMANDED} == DEMANDED
                policy = answer.headers["Content-Security-Policy"].split("; ")
                assert set(DIRECTIVES) <= set(policy)
                assert "unsafe" not in str(policy)
                body = FILES[path.removeprefix(site.PREFIX) if path != "/" else "index.html"].body
                assert await answer.read() == body
                etag = answer.headers["ETag"]
            async with session.get(path, headers={"If-None-Match": etag}) as answer:
                assert (answer.status, await answer.read()) == (304, b"")
        for path in ("/page/", "/page/..%2Fsite.py", "/page/%2e%2e/site.py", "/page/nothing.js"):
            async with session.get(path) as answer:
                assert answer.status == 404
        async with session.post("/") as answer:
            assert answer.status == 405


@pytest.mark.parametrize("name", FILES)
def test_no_file_needs_anything_from_elsewhere(name: str) -> None:
    """No URL of another host, no style or script in the HTML, and no way for a text to become HTML."""
    text = FILES[name].body.decode()
    assert set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    if name.endswith(".html"):
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", text)
