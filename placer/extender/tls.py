"""TLS for the extender's port, and the rule who may use it.

A bind changes the cluster, so whoever may ask for one must be known. What always holds: beyond loopback, a client
shows a certificate of the given authority. kube-scheduler has a client certificate for the API server already, which
serves here too. It can send no bearer token to an extender, so there is no setting for one.
"""

import asyncio
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from aiohttp import web

from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.part.settings import PREFIX

LOOK_S: Final = 60.0
"""The interval at which the certificate's files are checked. They are replaced hours before the old one ends."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of PEM files.

    Attributes:
        certificate, key: the server's; both empty for plain HTTP.
        client_ca: the authority of client certificates; empty to ask for none.
    """

    certificate: str = ""
    key: str = ""
    client_ca: str = ""

    def check(self, address: str) -> None:
        """Refuse files that cannot work together, or that leave an address open to strangers. Reads no file.

        Raises:
            InputError: naming the setting.
        """
        if bool(self.certificate) != bool(self.key):
            name = "KEY" if self.certificate else "CERTIFICATE"
            raise InputError(
                f"{PREFIX}EXTENDER_{name}", "", "is missing beside its other half", "give both, or neither"
            )
        if self.client_ca and not self.certificate:
            remedy = f"give {PREFIX}EXTENDER_CERTIFICATE and {PREFIX}EXTENDER_KEY too"
            raise InputError(PREFIX + "EXTENDER_CLIENT_CA", self.client_ca, "needs TLS", remedy)
        if not self.client_ca and not _is_loopback(address):
            problem = "is open to others, who could bind pods"
            remedy = f"give {PREFIX}EXTENDER_CLIENT_CA, or listen on 127.0.0.1"
            raise InputError(PREFIX + "HTTP_ADDRESS", address, problem, remedy)

    def context(self) -> ssl.SSLContext | None:
        """The server's side of TLS; None for plain HTTP. Blocks.

        Raises:
            InputError: a file cannot be read.
        """
        if not self.certificate:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            where, remedy = PREFIX + "EXTENDER_CERTIFICATE", "name PEM files of a certificate and its key"
            raise InputError(where, self.certificate, f"cannot be used ({error})", remedy) from error
        if self.client_ca:
            try:
                context.load_verify_locations(self.client_ca)
            except OSError as error:
                where, remedy = PREFIX + "EXTENDER_CLIENT_CA", "name a PEM file of certificates"
                raise InputError(where, self.client_ca, f"cannot be used ({error})", remedy) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def follow(self, context: ssl.SSLContext, look_s: float = LOOK_S) -> NoReturn:
        """Use the certificate's files anew whenever they change, for new connections, until cancelled."""
        used = await asyncio.to_thread(self._stamp)
        while True:
            heed_cancellation()
            await asyncio.sleep(look_s)  # no event reports that a mounted Secret changed
            stamp = await asyncio.to_thread(self._stamp)
            if stamp == used:
                continue
            try:
                await asyncio.to_thread(self._load, context)
            except OSError as error:  # also while only one of both files is new
                log.warning("certificate not read, the last one stays", error=str(error))
            else:
                used = stamp
                log.info("certificate read anew", path=self.certificate)

    def _load(self, context: ssl.SSLContext) -> None:
        """Load both files, once they are seen to fit: a certificate without its key would replace the last one."""
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        context.load_cert_chain(self.certificate, self.key)

    def _stamp(self) -> tuple[int, ...]:
        try:
            return tuple(Path(path).stat().st_mtime_ns for path in (self.certificate, self.key))
        except OSError:
            return ()


def client_name(request: web.BaseRequest) -> str:
    """The common name in the client's certificate; empty without one."""
    shown = request.get_extra_info("peercert") or {}
    return next(
        (value for part in shown.get("subject", ()) for key, value in part if key == "commonName"), ""
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
