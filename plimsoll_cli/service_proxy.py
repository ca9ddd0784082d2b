"""The way to the placer of a cluster that a kubeconfig names: the API server's proxy of the Service for reads.

The API server authenticates and authorises the caller by RBAC (`get` on `services/proxy`), so no address and no open
port is needed. It uses the header `Authorization` up, so a placer that asks for a token gets it in another header.
What always holds: the caller's own token goes to the API server alone. The placer gets a token that is good for
reading from placers and for nothing else; the API server makes it, if the caller may create tokens of the
ServiceAccount `plimsoll-reader`.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NoReturn, Self

import aiohttp
import msgspec

from plimsoll.kube.client import KubeClient
from plimsoll.kube.transport import ApiError
from plimsoll.part.errors import InputError
from plimsoll.part.log import log_nothing
from plimsoll.placer_api.access import AUDIENCE, PROXIED, READER, bearer
from plimsoll.placer_api.client import PlacerAwayError
from plimsoll.placer_api.ways import PlacerRequest
from plimsoll_cli.cluster import NAME, Cluster, client_of

SERVICE: Final = "plimsoll-reads"
"""The Service that has placers which are not ready too: without NATS they know less, and more than nothing."""
PARTS: Final = "plimsoll-placer"
PORT: Final = "http"

TOKEN_S: Final = 3600
"""The life of a token in seconds. Once the placer refuses it, the next one is asked for."""

UNAUTHORIZED: Final = 401

_ELSEWHERE: Final = "or name the placer with --placer, as after `kubectl port-forward`"


@dataclass(slots=True)
class PlacerService:
    """A placer of a cluster.

    Attributes:
        cluster: the cluster, as kubectl names it.
        namespace: that of the release.
        token: the one that the API server made for the placer; None before the placer asked. It is kept from one
            connection to the next.
    """

    cluster: Cluster
    namespace: str
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The service, for messages."""
        return f"the service {SERVICE} of the namespace {self.namespace}"


class _Status(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""


class _TokenStatus(msgspec.Struct, frozen=True):
    token: str


class _TokenRequest(msgspec.Struct, frozen=True):
    status: _TokenStatus


class ServiceProxy:
    """See `plimsoll.placer_api.ways.Way`.

    Args:
        service: the placer.
        token: for the placer, from the user; None for one of the API server's, once the placer asks.
    """

    def __init__(self, service: PlacerService, token: str | None = None) -> None:
        self._service = service
        self._given = token
        self._stack = contextlib.AsyncExitStack()
        self._client: KubeClient | None = None

    async def __aenter__(self) -> Self:
        """Read the kubeconfig.

        Raises:
            InputError: the kubeconfig cannot be used, or the namespace is malformed.
        """
        if not NAME.fullmatch(self._service.namespace):
            remedy = "name the release's, as in `helm list -A`"
            raise InputError("--release-namespace", self._service.namespace, "cannot be a namespace", remedy)
        # The commands have a line for each outcome; the log of the client would stand between.
        log_nothing()
        self._client = await self._stack.enter_async_context(client_of(self._service.cluster))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def sent(self, request: PlacerRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """See `Way`.

        Raises:
            PlacerAwayError: the API server does not answer, refuses the caller, or does not reach the placer.
        """
        async with contextlib.AsyncExitStack() as stack:
            try:
                response = await self._answer(request, stack)
            except ApiError as error:
                raise PlacerAwayError(str(error)) from error
            yield response

    async def _answer(
        self, request: PlacerRequest, stack: contextlib.AsyncExitStack
    ) -> aiohttp.ClientResponse:
        response = await self._asked(request, stack)
        if response.status == UNAUTHORIZED and self._given is None:  # no token yet, or it has expired
            self._service.token = await self._new_token()
            response = await self._asked(request, stack)
        return response

    async def _asked(
        self, request: PlacerRequest, stack: contextlib.AsyncExitStack
    ) -> aiohttp.ClientResponse:
        assert self._client is not None, "used outside its context"
        path = f"/api/v1/namespaces/{self._service.namespace}/services/{SERVICE}:{PORT}/proxy{request.path}"
        token = self._given or self._service.token
        headers = {PROXIED: bearer(token)} if token is not None else {}
        query = [(name, str(value)) for name, value in request.query.items()]
        opening = self._client.reading(path, query, headers, request.timeout)
        response = await stack.enter_async_context(opening)
        if response.status >= UNAUTHORIZED:
            status = _status_of(await response.read())
            if status is not None:
                self._refuse(response.status, status.message)
        return response

    def _refuse(self, status: int, message: str) -> NoReturn:
        """Raise for an answer of the API server itself."""
        if status == 404:
            remedy = (
                f"name the release's namespace with --release-namespace, as in `helm list -A`, {_ELSEWHERE}"
            )
        elif status == 403:
            remedy = f"ask for the Role {READER} of that namespace, {_ELSEWHERE}"
        elif status == UNAUTHORIZED:
            remedy = "renew the token or certificate in the kubeconfig"
        else:
            remedy = (
                f"see `kubectl -n {self._service.namespace} get pods -l app={PARTS}`, and whether a NetworkPolicy "
                f"keeps API servers away (networkPolicy.readers of the chart); {_ELSEWHERE}"
            )
        raise PlacerAwayError(f"the API server says: {message}; {remedy}")

    async def _new_token(self) -> str:
        assert self._client is not None, "used outside its context"
        path = f"/api/v1/namespaces/{self._service.namespace}/serviceaccounts/{READER}/token"
        body = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_S}}
        try:
            answer = await self._client.post(path, body)
            return msgspec.json.decode(answer, type=_TokenRequest).status.token
        except (ApiError, msgspec.MsgspecError) as error:
            remedy = f"give one in PLIMSOLL_PLACER_TOKEN_FILE, or ask for the Role {READER} of that namespace"
            raise PlacerAwayError(
                f"the placer asks for a token, and there is none ({error}); {remedy}"
            ) from error


def _status_of(body: bytes) -> _Status | None:
    """The API server's own answer; None for an answer of the placer, which has no kind."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        return None
    return status if status.kind == "Status" else None
