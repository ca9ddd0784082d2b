"""Asks the API server who a reader of the HTTP port is (TokenReview) and whether it may read (SubjectAccessReview).

The question is about the verb `get` on the URL's path, as kube-rbac-proxy asks it, so that a ClusterRole with
`nonResourceURLs` gives the right. What always holds: no failure of the API server gives access. Answers are kept for
`KEPT_S`, and `MOST_KEPT` of them of each kind: invented tokens push no accepted one out. An accepted reader is
reviewed again at once, however many others wait. Tokens are kept as hashes.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from placer.api.access import NOT_ACCEPTED, CannotJudgeError, ForbiddenReaderError, UnknownReaderError
from plimsoll.kube.transport import ApiError, Transport
from plimsoll.part.causes import Outage
from plimsoll.part.errors import PlimsollError
from plimsoll.part.log import get_logger
from plimsoll.placer_api.access import AUDIENCE, READER

IDENTITY_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
PERMISSION_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

KEPT_S: Final = 10.0
"""Seconds for which an answer is good. A withdrawn token reads for this long."""

MOST_KEPT: Final = 1024
"""The most accepted answers that are kept, and the most refused ones. The oldest give way."""

MOST_AT_ONCE: Final = 8
"""Reviews under way, of new readers and of accepted ones. Invented tokens then load the API server no further."""

MOST_WAITING: Final = 64
"""Requests of new readers that wait for a review. More are answered at once that they cannot be judged."""

ANSWER_S: Final = 10.0
"""Seconds until a review counts as failed, with the time in which it waits for others."""

AUDIENCES: Final = ((AUDIENCE,), ())
"""Tokens for us alone come first; an empty list stands for the API server's own audiences, as of pods' tokens."""

log = get_logger()


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _Identity(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] = ()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _Identity = _Identity()


class _Permission(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _Permission = _Permission()


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer: None gives access, and it is good until `until_s` of the clock."""

    until_s: float
    refusal: PlimsollError | None


_Key = tuple[bytes, str]


@dataclass(slots=True)
class Reviews:
    """See `placer.api.access.Access`.

    Attributes:
        transport: the transport to the API server.
        clock_s: a clock in seconds that never goes back.
    """

    transport: Transport
    clock_s: Callable[[], float]
    _accepted: OrderedDict[_Key, _Kept] = field(default_factory=OrderedDict)
    _refused: OrderedDict[_Key, _Kept] = field(default_factory=OrderedDict)
    _waiting: int = 0
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    _places_again: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    _outage: Outage = field(default_factory=lambda: Outage(log.warning))

    async def check(self, token: str, path: str) -> None:
        """See `placer.api.access.Access`."""
        key = (hashlib.sha256(token.encode()).digest(), path)
        accepted = self._accepted.get(key)
        kept = accepted or self._refused.get(key)
        if kept is None or kept.until_s <= self.clock_s():
            refusal = await (self._asked(token, path) if accepted is None else self._asked_again(token, path))
            kept = _Kept(self.clock_s() + KEPT_S, refusal)
            self._keep(key, kept)
        if kept.refusal is not None:
            raise kept.refusal.with_traceback(None)

    def _keep(self, key: _Key, kept: _Kept) -> None:
        self._accepted.pop(key, None)
        self._refused.pop(key, None)
        answers = self._accepted if kept.refusal is None else self._refused
        answers[key] = kept
        while len(answers) > MOST_KEPT:
            answers.popitem(last=False)

    async def _asked(self, token: str, path: str) -> PlimsollError | None:
        """The API server's answer: the refusal, or None. Raises `CannotJudgeError`, which is not kept."""
        if self._waiting >= MOST_WAITING:
            raise CannotJudgeError(
                f"{self._waiting} readers wait to be judged already; ask again in some seconds"
            )
        self._waiting += 1
        try:
            return await self._answered(token, path, self._places)
        finally:
            self._waiting -= 1

    async def _asked_again(self, token: str, path: str) -> PlimsollError | None:
        """The same for a token that was accepted before; reviews of new readers do not hold it up."""
        return await self._answered(token, path, self._places_again)

    async def _answered(self, token: str, path: str, places: asyncio.Semaphore) -> PlimsollError | None:
        try:
            async with asyncio.timeout(ANSWER_S), places:
                refusal = await self._reviewed(token, path)
        except (ApiError, TimeoutError, msgspec.MsgspecError) as error:
            cause = str(error) or f"no answer in {ANSWER_S:.0f} s"
            self._outage.failed("readers of the HTTP port cannot be judged", cause)
            raise CannotJudgeError(
                "the API server cannot say now whether this token may read; ask again in some seconds. "
                "The placer's log has the cause"
            ) from error
        self._outage.ended()
        return refusal

    async def _reviewed(self, token: str, path: str) -> PlimsollError | None:
        user = await self._user(token)
        if user is None:
            return UnknownReaderError(NOT_ACCEPTED)
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        answer = await self._post(PERMISSION_PATH, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        if msgspec.json.decode(answer, type=_AccessReview).status.allowed:
            return None
        remedy = f"bind the ClusterRole {READER}, or another with the verb get on this nonResourceURL"
        return ForbiddenReaderError(f"user {user.username!r} may not get {path!r}; {remedy}")

    async def _user(self, token: str) -> _User | None:
        for audiences in AUDIENCES:
            spec = {"token": token, "audiences": audiences}
            answer = await self._post(IDENTITY_PATH, "authentication.k8s.io/v1", "TokenReview", spec)
            identity = msgspec.json.decode(answer, type=_TokenReview).status
            # An authenticator that knows no audiences names none; its token may be meant for somebody else.
            is_for_us = not audiences or AUDIENCE in identity.audiences
            if identity.authenticated and identity.user.username and is_for_us:
                return identity.user
        return None

    async def _post(self, path: str, version: str, kind: str, spec: Mapping[str, object]) -> bytes:
        return await self.transport.post(path, {"apiVersion": version, "kind": kind, "spec": spec})
