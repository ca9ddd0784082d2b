"""Debian's Chromium, headless, and a page in it that must stay without errors.

`make test` installs Chromium (`tools/debian-packages chromium`). Where it is missing the tests are skipped, but not
in CI: there a missing browser is a failure.
"""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright, expect

TIMEOUT_MS = 60_000
"""Far above a loaded machine's need, so only a state that never comes reaches it."""

expect.set_options(timeout=TIMEOUT_MS)

SERIOUS = ("serious", "critical")
"""The impacts of barriers that fail a test."""

MISSING = "chromium is missing; remedy: tools/debian-packages chromium"


@dataclass  # without slots: Playwright keeps attributes of its own on the owner of a handler
class Watched:
    """A page, and all that it must not do.

    Attributes:
        errors: errors and warnings of its console, and exceptions that nobody caught.
        requests: the URLs that it asked for.
    """

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Note errors and requests from now on."""
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._note_request)

    @contextlib.asynccontextmanager
    async def at(self, url: str) -> AsyncIterator[None]:
        """Load the page, wait until it has every node, and leave it at the end, while its server still runs."""
        await self.page.goto(url)
        await self.page.wait_for_selector("body[data-synced]")
        try:
            yield
        finally:
            await self.page.goto("about:blank")

    async def barriers(self) -> list[str]:
        """The serious findings of axe-core on the page as it is now."""
        found = await self.page.evaluate(AXE_FILE_PATH.read_text() + "\naxe.run()")
        return [
            f"{one['id']}: {node['html']} {node.get('failureSummary', '')}"
            for one in found["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"]
        ]

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def _note_request(self, request: Request) -> None:
        self.requests.append(request.url)


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """The browser of the whole run."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    async with async_playwright() as playwright:
        # Root cannot use Chromium's sandbox, and the tests' own pages are all that it loads.
        browser = await playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=TIMEOUT_MS
        )
        yield browser
        await browser.close()


@pytest.fixture
async def watched(chromium: Browser) -> AsyncIterator[Watched]:
    """A page in a window of its own, with a light theme. At the end it must have had no error."""
    context = await chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(TIMEOUT_MS)
    context.set_default_navigation_timeout(TIMEOUT_MS)
    shown = Watched(await context.new_page())
    shown.listen()
    yield shown
    await context.close()
    assert shown.errors == []
