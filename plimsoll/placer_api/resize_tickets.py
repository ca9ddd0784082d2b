"""Resizes of pods in Kubernetes: annotations on the pod, the ticket with its author, and the answer.

A person writes the ticket on the pod with credentials of their own, so no token goes anywhere but to the API server.
There, the policy `deploy/annotations-policy.yaml` admits it only from users who have the verb `resize` on that pod:
the API server asks its authorizer about the very user of the request, as a SubjectAccessReview does. The placer,
which watches pods anyway, carries the ticket out and writes the answer.

What always holds: an answer names its ticket by a digest of the text. A ticket that has been taken back, or replaced,
is not carried out any more.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from plimsoll.events import Limit
from plimsoll.ids import ContainerName
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize, ResizeAnswer, Resizing

TICKET: Final = "plimsoll.dev/resize"
AUTHOR: Final = "plimsoll.dev/resize-by"
"""The user who wrote the ticket. The policy admits a ticket only with the name by which the API server knows its
author, so nobody resizes in another one's name."""
ANSWER: Final = "plimsoll.dev/resize-answer"

VERB: Final = "resize"
"""The verb on pods, in RBAC, of those who may resize them."""

LONGEST: Final = 2000
"""The most characters of a ticket; a real one has some 200."""


class Ticket(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The value of the annotation `plimsoll.dev/resize`, in JSON; see `Resize`.

    Attributes:
        nonce: any text that makes a repeated ticket differ from the one before.
    """

    gpu_memory: str | None = None
    gpu_share: str | None = None
    gpu_share_limit: str | None = None
    container: ContainerName | None = None
    nonce: str = ""


class Answered(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of the annotation `plimsoll.dev/resize-answer`, in JSON.

    Attributes:
        ticket: the digest of the ticket's text.
        answer: `Resizing` once the change is written; `Refused` and `Failed` end the ticket.
        confirmed: what the node's broker put in force, for each GPU; None until then.
    """

    ticket: str
    answer: ResizeAnswer
    confirmed: tuple[Limit, ...] | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing more follows: the ticket is refused, has failed, or holds."""
        return self.confirmed is not None or not isinstance(self.answer, Resizing)


def digest_of(text: str) -> str:
    """The name of a ticket."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def ticket_on(pod: Pod) -> str | None:
    """The text of the ticket on a pod; None where there is none."""
    return _annotations(pod).get(TICKET)


def author_on(pod: Pod) -> str:
    """The user who wrote the ticket on a pod; empty where the cluster has no policy that demands the name."""
    return _annotations(pod).get(AUTHOR, "")


def answer_on(pod: Pod, ticket: str) -> Answered | None:
    """The answer on a pod to this ticket, by its text; None while there is none."""
    try:
        found = msgspec.json.decode(_annotations(pod).get(ANSWER, ""), type=Answered)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.ticket == digest_of(ticket) else None


def resize_in(pod: Pod, text: str) -> Resize:
    """The request that a ticket makes.

    Raises:
        InputError: the ticket cannot be read.
    """
    field = f"metadata.annotations[{TICKET}]"
    remedy = "use `plimsoll resize`, which writes it"
    if len(text) > LONGEST:
        raise InputError(field, text, f"has more than {LONGEST} characters", remedy)
    try:
        ticket = msgspec.json.decode(text, type=Ticket)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(field, text, f"is no ticket ({error})", remedy) from error
    return Resize(
        pod=pod.metadata.name,
        namespace=pod.metadata.namespace,
        gpu_memory=ticket.gpu_memory,
        gpu_share=ticket.gpu_share,
        gpu_share_limit=ticket.gpu_share_limit,
        container=ticket.container,
    )


def ticket_for(request: Resize, nonce: str) -> str:
    """The text of the ticket for a request."""
    ticket = Ticket(
        gpu_memory=request.gpu_memory,
        gpu_share=request.gpu_share,
        gpu_share_limit=request.gpu_share_limit,
        container=request.container,
        nonce=nonce,
    )
    return msgspec.json.encode(ticket).decode()


def _annotations(pod: Pod) -> Mapping[str, str]:
    return pod.metadata.annotations or {}
