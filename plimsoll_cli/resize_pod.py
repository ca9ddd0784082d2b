"""`plimsoll resize` of a pod in Kubernetes: writes the ticket on the pod, and waits there for the placer's answer.

The API server authenticates and authorises the caller, by the caller's own kubeconfig. No token goes anywhere else,
and no access to the bus is needed. What always holds: the command succeeds only after the node's broker confirmed the
change for every GPU of the container. A ticket that no placer took up in time is taken back.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from plimsoll.events import Limit
from plimsoll.kube.client import KubeClient, Sent
from plimsoll.kube.models import TERMINAL_PHASES, Pod, decode_pod
from plimsoll.kube.transport import (
    ApiError,
    ConflictError,
    NotFoundError,
    PatchKind,
    RefusedError,
    TransientError,
)
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.placer_api.resize_tickets import (
    AUTHOR,
    TICKET,
    VERB,
    Answered,
    answer_on,
    ticket_for,
    ticket_on,
)
from plimsoll.placer_api.rpc import Failed, Refused, Resize, Resizing, change_shown
from plimsoll.quantity import format_bytes
from plimsoll_cli.cluster import NAME, Cluster, client_of
from plimsoll_cli.output import named_if_slow

LOOK_S: Final = 0.5
"""Seconds between two readings of the pod, where the caller may not watch it, or a watch has ended."""

SILENT_S: Final = 60.0
"""Seconds for which a watch may be silent before it is opened anew."""

TAKE_BACK_S: Final = 10.0
"""Seconds that taking a ticket back may take."""

REMEDY: Final = (
    f"the account needs `get` and `patch` on pods and the verb `{VERB}` on pods in that namespace: see "
    "deploy/resize-role.yaml; the cluster needs deploy/annotations-policy.yaml of this version"
)


class NotResizedError(PlimsollError):
    """The placer refused the request: nothing was changed."""


class NotConfirmedError(PlimsollError):
    """The change is not known to hold; the message says how far it came."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A change that holds now, as its broker announced it.

    Attributes:
        asked: the placer's answer.
        limits: a confirmation for each GPU, in the order of `asked.before`.
    """

    request: Resize
    asked: Resizing
    limits: tuple[Limit, ...]

    def lines(self) -> Iterable[str]:
        """A text line for each GPU, for people."""
        for before, limit in zip(self.asked.before, self.limits, strict=True):
            text = f"{limit.gpu} on {self.asked.node}: {change_shown(self.request, before, limit)}"
            if self.request.gpu_memory is not None:
                text += ", " + (limit.reason or f"holds {format_bytes(limit.used_bytes)} now")
            yield text


class _User(msgspec.Struct, frozen=True):
    username: str


class _ReviewStatus(msgspec.Struct, frozen=True):
    userInfo: _User  # noqa: N815 - the API's name


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


async def resize_pod(request: Resize, cluster: Cluster, timeout_s: float) -> Confirmed:
    """Request a change, and return once it holds. After cancelling, the change may still happen.

    Args:
        request: the change.
        cluster: the cluster of the pod.
        timeout_s: the longest time for the answers of API server, placer and broker together.

    Raises:
        NotResizedError: the API server or the placer refused; nothing was changed.
        NotConfirmedError: the API server or the placer did not answer, or no confirmation came in time.
        InputError: a name cannot be one, or there is no usable kubeconfig.
    """
    path, ticket = _path(request), ticket_for(request, secrets.token_hex(8))
    asked: Resizing | None = None
    sent = Sent()
    async with client_of(cluster) as client:
        try:
            async with asyncio.timeout(timeout_s):
                await _write(client, path, request, ticket, sent)
                with ExitStack() as waiting:
                    waiting.enter_context(named_if_slow("the placer"))
                    async with aclosing(_versions(client, path)) as versions:
                        async for pod in versions:
                            match _answered(pod, ticket):
                                case Answered(answer=Resizing() as asked, confirmed=limits) if (
                                    limits is not None
                                ):
                                    return Confirmed(request, asked, limits)
                                case Answered(answer=Resizing() as asked):
                                    waiting.close()
                                    waiting.enter_context(named_if_slow(f"the broker on {asked.node}"))
                                case None:
                                    _check_running(pod)
        except TimeoutError as error:
            if not sent.any:
                text = f"{client.host} gave no answer in {timeout_s:g} s; nothing was changed; ask again"
                raise NotConfirmedError(text) from error
            text = await _late(client, path, ticket, asked, timeout_s)
            raise NotConfirmedError(text) from error
        raise AssertionError("the versions of a pod have no end")


def _answered(pod: Pod, ticket: str) -> Answered | None:
    """The placer's answer on a version of the pod, if it accepted the change; None before it answered.

    Raises:
        NotResizedError, NotConfirmedError: the change was refused, failed, or was replaced by another one.
    """
    if ticket_on(pod) != ticket:
        raise NotConfirmedError("another resize replaced this one on the pod; look at it, and ask again")
    answered = answer_on(pod, ticket)
    match answered.answer if answered is not None else None:
        case Refused(message=words):
            raise NotResizedError(words)
        case Failed(message=words):
            raise NotConfirmedError(words)
    return answered


def _check_running(pod: Pod) -> None:
    """Refuse a pod to whose ticket no placer would ever answer."""
    if not pod.spec.nodeName:
        remedy = "wait until it is placed (`plimsoll explain` says why it waits), or change its manifest"
        raise NotResizedError(f"pod: {pod.full_name!r} is not placed yet; {remedy}")
    if pod.status.phase in TERMINAL_PHASES:
        raise NotResizedError(f"pod: {pod.full_name!r} has ended; name a running pod")


def _path(request: Resize) -> str:
    for field, name in (("namespace", request.namespace), ("pod", request.pod)):
        if not NAME.fullmatch(name):
            raise InputError(field, name, "cannot be a name in Kubernetes", "use lower case, digits, - and .")
    return f"/api/v1/namespaces/{request.namespace}/pods/{request.pod}"


async def _write(client: KubeClient, path: str, request: Resize, ticket: str, sent: Sent) -> None:
    """Write the ticket on a pod that runs; `sent` then knows whether it may be there."""
    name = f"{request.namespace}/{request.pod}"
    try:
        _check_running(decode_pod(await client.get(path)))
        body = {"metadata": {"annotations": {TICKET: ticket, AUTHOR: await _own_name(client)}}}
        with sent:
            await client.patch(path, body, PatchKind.MERGE)
    except NotFoundError as error:
        if not error.reason:  # the server is none of Kubernetes, or its path is wrong
            raise NotResizedError(str(error)) from error
        raise NotResizedError(
            f"pod: {name!r} does not exist; name a running pod, and its namespace with -n"
        ) from error
    except RefusedError as error:
        remedy = REMEDY if error.status in (403, 422) else "see `kubectl auth whoami`"
        raise NotResizedError(f"{error}; {remedy}") from error
    except ApiError as error:
        is_known = not sent.any or (isinstance(error, TransientError) and error.is_unwritten)
        outcome = "nothing was changed" if is_known else "it is unknown whether the ticket was written"
        raise NotConfirmedError(f"{error}; {outcome}; ask again") from error


async def _own_name(client: KubeClient) -> str | None:
    """The caller's name, as the API server knows it; None where the server does not say, and the policy refuses."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
        return msgspec.json.decode(answer, type=_Review).status.userInfo.username
    except (RefusedError, NotFoundError, msgspec.MsgspecError):
        return None


async def _versions(client: KubeClient, path: str) -> AsyncGenerator[Pod]:
    """The pod as it is now, and each later version, for ever; versions may be left out while a watch is away."""
    collection, _, name = path.rpartition("/")
    while True:
        try:
            pod = decode_pod(await client.get(path))
            yield pod
            query = (
                ("watch", "1"),
                ("fieldSelector", f"metadata.name={name}"),
                ("resourceVersion", pod.metadata.resourceVersion),
            )
            async with client.stream(collection, query, SILENT_S) as lines:
                async for line in lines:
                    event = msgspec.json.decode(line, type=_Event)
                    if event.type == "DELETED":
                        _gone(name)
                    if event.type == "ERROR":
                        break
                    yield decode_pod(bytes(event.object))
        except NotFoundError:
            _gone(name)
        except (ApiError, msgspec.MsgspecError):
            pass  # the caller may not watch, or the API server is away: read again until the caller's time is over
        await asyncio.sleep(LOOK_S)  # a watch that is refused or broken is not tried again at once


def _gone(name: str) -> NoReturn:
    raise NotResizedError(f"pod: {name!r} was deleted meanwhile; resize the new one")


async def _late(client: KubeClient, path: str, ticket: str, asked: Resizing | None, timeout_s: float) -> str:
    """The message for a timeout. A ticket that no placer took up is withdrawn."""
    if asked is not None:
        return (
            f"the placer accepted it, but the broker on {asked.node} did not confirm in {timeout_s:g} s; the values "
            "before stay in force until then: check the broker and the monitor of that node"
        )
    try:
        async with asyncio.timeout(TAKE_BACK_S):
            if await _take_back(client, path, ticket):
                return (
                    f"no placer took it up in {timeout_s:g} s, and the ticket is taken back: nothing was changed; "
                    "is a placer running, and has one the Lease (`kubectl get lease -A`)?"
                )
    except (ApiError, TimeoutError):
        pass
    return (
        f"the placer gave no answer in {timeout_s:g} s, and the ticket may still be carried out; see "
        f"metadata.annotations[{TICKET}] of the pod and the placer's log"
    )


async def _take_back(client: KubeClient, path: str, ticket: str) -> bool:
    """Remove the ticket, unless it was answered meanwhile; a placer that carries it out just then writes in vain."""
    while True:
        pod = decode_pod(await client.get(path))
        if ticket_on(pod) != ticket or answer_on(pod, ticket) is not None:
            return False
        meta = pod.metadata
        version = {"uid": meta.uid, "resourceVersion": meta.resourceVersion}
        try:
            await client.patch(
                path, {"metadata": {**version, "annotations": {TICKET: None, AUTHOR: None}}}, PatchKind.MERGE
            )
        except ConflictError:
            await asyncio.sleep(0)  # the pod has changed: look again
        else:
            return True
