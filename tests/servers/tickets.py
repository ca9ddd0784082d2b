"""Tickets for a resize on pods, written as `plimsoll resize` writes them."""

import json
import uuid

from plimsoll.placer_api.resize_tickets import ANSWER, AUTHOR, TICKET, digest_of, ticket_for
from plimsoll.placer_api.rpc import Resize
from tests.servers.apiserver import Object


def ticket(**change: str) -> str:
    """The text of a ticket, which differs from all others."""
    return ticket_for(Resize(pod="", **change), uuid.uuid4().hex)  # type: ignore[arg-type]  # all are texts


def ticketing(text: str | None, author: str = "admin") -> Object:
    """The patch by which a user puts a ticket on a pod, or takes it away."""
    return {"metadata": {"annotations": {TICKET: text, AUTHOR: author if text is not None else None}}}


def answer_in(pod: Object, text: str) -> Object:
    """The answer to a ticket on a pod, and whether it is final, in `final`; empty while there is none."""
    answered = json.loads((pod["metadata"].get("annotations") or {}).get(ANSWER, "{}"))
    if answered.get("ticket") != digest_of(text):
        return {}
    answer: Object = answered["answer"]
    return {**answer, "final": answer["type"] != "resizing" or "confirmed" in answered}
