"""The API server's question and our answer: `AdmissionReview` of `admission.k8s.io/v1`, bytes in and bytes out.

What always holds: every well-formed review gets a well-formed answer with its uid, whatever its object is. A body
that is no review raises. A review about anything but a new pod, a changed pod, or its ephemeral containers is
allowed.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from placer.webhook.core.json_patch import difference
from placer.webhook.core.judgement import (
    AdmissionRules,
    Admitted,
    judge_creation,
    judge_ephemeral,
    judge_update,
)
from plimsoll.dialects import Json
from plimsoll.dialects.shape import no_pod
from plimsoll.part.errors import InputError, PlimsollError

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

REMARK_CHARS: Final = 256
"""The API server advises against longer warnings."""
REMARKS_CHARS: Final = 3072
"""It may cut all warnings together at 4096 bytes; the rest is for other webhooks."""


class NoReviewError(PlimsollError):
    """The body is no review, so there is nothing to answer."""


@dataclass(frozen=True, slots=True)
class ReviewAnswer:
    """Our answer.

    Attributes:
        body: an `AdmissionReview` in JSON.
        outcome: for metrics: `patched`, `unchanged` or `refused`.
        is_translated: the pod asked in another scheduler's way, and was admitted.
    """

    body: bytes
    outcome: str
    is_translated: bool = False


class _Kind(Struct):
    kind: str = ""


class _Request(Struct):
    uid: str
    operation: str = ""
    subResource: str | None = None  # noqa: N815 - the API's name
    kind: _Kind | None = None
    object: Raw | UnsetType = UNSET
    oldObject: Raw | UnsetType = UNSET  # noqa: N815


class _Review(Struct):
    apiVersion: str  # noqa: N815
    kind: str
    request: _Request


def answer(body: bytes, rules: AdmissionRules) -> ReviewAnswer:
    """Answer a review.

    Raises:
        NoReviewError: the body is no review of this version.
    """
    request = _request(body)
    try:
        before = _object(request.object)
        admitted = _judged(request, before, rules)
    except InputError as error:
        status = {"code": 400, "reason": "BadRequest", "status": "Failure", "message": str(error)}
        return ReviewAnswer(_encoded({"uid": request.uid, "allowed": False, "status": status}), "refused")
    response: Json = {"uid": request.uid, "allowed": True}
    if admitted.remarks:
        response["warnings"] = _shortened(admitted.remarks)
    patch = difference(before, admitted.pod)
    if patch:
        encoded = b64encode(msgspec.json.encode(patch)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    return ReviewAnswer(_encoded(response), "patched" if patch else "unchanged", admitted.is_translated)


def _request(body: bytes) -> _Request:
    try:
        review = msgspec.json.decode(body, type=_Review)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NoReviewError(f"no {KIND}: {error}") from error
    if (review.apiVersion, review.kind) != (API_VERSION, KIND):
        raise NoReviewError(f"{review.apiVersion} {review.kind} is no {API_VERSION} {KIND}")
    if not review.request.uid:
        raise NoReviewError(f"the {KIND} has no uid")
    return review.request


def _object(encoded: Raw | UnsetType) -> Json:
    """The object of a review as JSON; empty where the review has none."""
    if encoded is UNSET:
        return {}
    try:
        return msgspec.json.decode(encoded, type=Json | None) or {}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise no_pod(error) from error


def _judged(request: _Request, pod: Json, rules: AdmissionRules) -> Admitted:
    if request.kind is not None and request.kind.kind != "Pod":
        return Admitted(pod)
    match request.operation, request.subResource or "":
        case "CREATE", "":
            return judge_creation(pod, rules)
        case "UPDATE", "":
            return judge_update(pod, _object(request.oldObject), rules)
        case "UPDATE", "ephemeralcontainers":
            return judge_ephemeral(pod, _object(request.oldObject), rules)
        case _:
            return Admitted(pod)


def _shortened(remarks: tuple[str, ...]) -> list[str]:
    kept, room = [], REMARKS_CHARS
    for remark in remarks:
        short = remark if len(remark) <= REMARK_CHARS else remark[: REMARK_CHARS - 3] + "..."
        room -= len(short)
        if room < 0:
            break
        kept.append(short)
    return kept


def _encoded(response: Json) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
