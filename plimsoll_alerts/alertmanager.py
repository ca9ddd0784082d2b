"""Alertmanager's v2 API: `POST /api/v2/alerts`, again and again, whatever fails.

What always holds: no failure ends a sender, and none loses an alert; each cause is logged once. Senders of several
Alertmanagers do not wait for each other. Passwords and tokens are read at each post, so they may be replaced while
the service runs, and are never logged.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage, cause_of
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.part.settings import shown_url
from plimsoll.part.times import rfc3339
from plimsoll_alerts.core.alert import Alert, Labels
from plimsoll_alerts.core.delivery import Delivery, Post
from plimsoll_alerts.settings import PREFIX, RUNBOOKS, Settings

PATH: Final = "/api/v2/alerts"

BATCH: Final = 256
"""Alerts of one post: some 200 kB."""

ANSWER_S: Final = 10.0
"""A healthy Alertmanager answers in milliseconds; Prometheus waits as long."""

LONGEST_PAUSE_S: Final = 15.0
"""The longest pause between attempts: a fourth of the interval at which alerts are sent anyhow."""

REMEDIES: Final = {
    400: "see Alertmanager's log",
    401: f"correct {PREFIX}USER and {PREFIX}PASSWORD_FILE, or {PREFIX}TOKEN_FILE",
    403: "give the user the right to post alerts",
    404: f"correct the path in {PREFIX}ALERTMANAGER_URL; Alertmanager is 0.16 or newer",
}

log = get_logger()


class _RefusedError(Exception):
    """Alertmanager did not take the alerts, or could not be asked."""


class Sender:
    """The way to one Alertmanager. `run` it as a task.

    Attributes:
        url: Alertmanager's, as it may be shown.
        delivery: what it is to be sent.
        posts, failures: attempts that succeeded, and that failed.
        is_up: whether the last attempt succeeded; None before any.
    """

    def __init__(self, url: str, settings: Settings, labels: Mapping[str, str]) -> None:
        """Send to `url`, with `labels` beside each alert's own."""
        self.url = shown_url(url)
        self.delivery = Delivery(settings.resend_s)
        self.posts = self.failures = 0
        self.is_up: bool | None = None
        self._target = url + PATH
        self._settings = settings
        self._labels = dict(labels)
        self._wakened = asyncio.Event()
        self._outage = Outage(log.warning)

    def show(self, firing: Mapping[Labels, Alert]) -> None:
        """Note what fires now, and send what changed."""
        now_s = time.monotonic()
        self.delivery.update(firing, datetime.now(UTC), now_s)
        if self.delivery.due(datetime.now(UTC), now_s):
            self._wakened.set()

    async def run(self) -> None:
        """Send for ever."""
        context = await asyncio.to_thread(tls_context, self._settings)
        connector = aiohttp.TCPConnector(ssl=context) if context else None
        pauses = Pauses(longest_s=LONGEST_PAUSE_S)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=ANSWER_S)
        ) as session:
            while True:
                heed_cancellation()
                await self._wakened.wait()
                self._wakened.clear()
                try:
                    await self._send_due(session)
                except (aiohttp.ClientError, OSError, TimeoutError, _RefusedError) as error:
                    self._failed(error)
                    await asyncio.sleep(pauses.next_s())
                    self._wakened.set()
                else:
                    pauses.reset()

    async def _send_due(self, session: aiohttp.ClientSession) -> None:
        posts = self.delivery.due(datetime.now(UTC), time.monotonic())
        for start in range(0, len(posts), BATCH):
            batch = posts[start : start + BATCH]
            await self._post(session, batch)
            self.delivery.taken(batch, time.monotonic())
            self.posts += 1
        if posts:
            if self.is_up is not True:
                log.info("alerts are sent", alertmanager=self.url, alerts=len(posts))
            self.is_up = True
            self._outage.ended()

    async def _post(self, session: aiohttp.ClientSession, posts: Sequence[Post]) -> None:
        body = msgspec.json.encode(
            [encoded(post, self._labels, self._settings.runbook_url) for post in posts]
        )
        headers = {"Content-Type": "application/json", **await asyncio.to_thread(_identity, self._settings)}
        # A redirect would take the password to another server.
        async with session.post(self._target, data=body, headers=headers, allow_redirects=False) as answer:
            text = (await answer.content.read(300)).decode(errors="replace").strip()
            if not 200 <= answer.status < 300:
                remedy = REMEDIES.get(answer.status, f"see its log, and {PREFIX}ALERTMANAGER_URL")
                raise _RefusedError(f"it answered {answer.status} {text!r}; {remedy}")

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.is_up = False
        is_ours = isinstance(error, _RefusedError)
        cause = str(error) if is_ours else cause_of(error, f"{PREFIX}ALERTMANAGER_URL")
        self._outage.failed(
            "alerts wait until Alertmanager takes them",
            cause,
            alertmanager=self.url,
            waiting=self.delivery.waiting,
        )


def encoded(post: Post, labels: Mapping[str, str], runbook_url: str) -> dict[str, Any]:
    """An alert as the v2 API takes it."""
    return {
        "labels": {**labels, **dict(post.alert.labels)},
        "annotations": {
            "summary": post.alert.summary,
            "description": post.alert.description,
            "runbook_url": f"{runbook_url.rstrip('/') or RUNBOOKS}/{post.alert.runbook}",
        },
        "startsAt": rfc3339(post.starts),
        "endsAt": rfc3339(post.ends),
    }


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """This client's side of TLS; None for aiohttp's own, which trusts the system's authorities. Blocks on the disk.

    Raises:
        InputError: a file holds no certificates.
    """
    if not settings.ca and not settings.certificate:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.certificate:
            context.load_cert_chain(settings.certificate, settings.key)
    except OSError as error:
        name = "CA" if settings.ca and not settings.certificate else "CERTIFICATE"
        problem = f"cannot be used ({error.strerror or type(error).__name__})"
        remedy = "name a PEM file of certificates"
        raise InputError(PREFIX + name, settings.ca or settings.certificate, problem, remedy) from error
    return context


def _identity(settings: Settings) -> dict[str, str]:
    """The header by which Alertmanager knows this client. Blocks on the disk.

    Raises:
        _RefusedError: the file cannot be read now.
    """
    name, path = "PASSWORD_FILE", settings.password_file
    if settings.token_file:
        name, path = "TOKEN_FILE", settings.token_file
    if not path:
        return {}
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is no text"
        raise _RefusedError(f"{PREFIX}{name} cannot be read ({cause}); name a readable file") from error
    if not secret.isprintable():  # as in a file of several lines, which no header can hold
        raise _RefusedError(f"{PREFIX}{name} holds more than one line; write the secret alone")
    if settings.token_file:
        return {"Authorization": f"Bearer {secret}"}
    return {"Authorization": aiohttp.encode_basic_auth(settings.user, secret, "utf-8")}
