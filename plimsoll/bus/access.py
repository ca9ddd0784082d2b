"""How a client of the bus shows who it is, and how it knows the server: by files, beside what the URL says.

What always holds: nothing in these files is ever logged, also where a secret was given in place of its file. A client
reads the credentials and the nkey at each connection, and the certificates when it starts.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from plimsoll.part.errors import InputError
from plimsoll.part.settings import PREFIX, shown_path

_SEED: Final = "SU"
"""How the seed of a user's nkey begins."""

_JWT: Final = "-----BEGIN NATS USER JWT-----"


@dataclass(frozen=True, slots=True)
class BusAccess:
    """The paths of files; empty where there is none.

    Attributes:
        ca: PEM, the authorities of the server's certificate; empty: those of the system.
        certificate, key: PEM, this client's certificate and its key, for servers that ask for one.
        credentials: a user's JWT and nkey, as `nsc` writes them (`.creds`).
        nkey: the seed of a user's nkey, for servers that list its public half.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    credentials: str = ""
    nkey: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "BusAccess":
        """The files that a command is given by the parts' own variables, such as `PLIMSOLL_NATS_CA`."""
        return cls(*(environment.get(f"{PREFIX}NATS_{each.name.upper()}", "") for each in fields(cls)))

    def check(self) -> None:
        """Refuse files that cannot be used. Blocks on the disk.

        Raises:
            InputError: naming the variable, the path and the remedy, never what is in the file.
        """
        if bool(self.certificate) != bool(self.key):
            name = "NATS_KEY" if self.certificate else "NATS_CERTIFICATE"
            raise InputError(PREFIX + name, "", "is missing beside its other half", "give both, or neither")
        if self.credentials and self.nkey:
            remedy = f"give it, or {PREFIX}NATS_CREDENTIALS, whose file has an nkey"
            raise InputError(PREFIX + "NATS_NKEY", shown_path(self.nkey), "is a second identity", remedy)
        self._context()
        if self.credentials and _JWT not in _text("NATS_CREDENTIALS", self.credentials):
            remedy = "name a .creds file of a user, as `nsc generate creds` prints it"
            raise InputError(
                PREFIX + "NATS_CREDENTIALS", shown_path(self.credentials), "has no user's JWT", remedy
            )
        if self.nkey and not _text("NATS_NKEY", self.nkey).strip().startswith(_SEED):
            remedy = f"name a file with a user's seed ({_SEED}…), as `nsc generate nkey --user` prints it"
            raise InputError(
                PREFIX + "NATS_NKEY", shown_path(self.nkey), "has no seed of a user's nkey", remedy
            )

    def options(self) -> dict[str, Any]:
        """The options of `nats.aio.client.Client.connect`. Blocks on the disk.

        Raises:
            InputError: a file cannot be read any more.
        """
        options = {"tls": self._context(), "user_credentials": self.credentials, "nkeys_seed": self.nkey}
        return {name: value for name, value in options.items() if value}

    def _context(self) -> ssl.SSLContext | None:
        """This client's side of TLS; None for the client library's own, which trusts the system's authorities."""
        if not self.ca and not self.certificate:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            remedy = "name a PEM file of certificates"
            raise InputError(
                PREFIX + "NATS_CA", shown_path(self.ca), f"cannot be used ({_reason(error)})", remedy
            ) from error
        if self.certificate:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except OSError as error:
                where, remedy = PREFIX + "NATS_CERTIFICATE", "name PEM files of a certificate and its key"
                raise InputError(
                    where, shown_path(self.certificate), f"cannot be used ({_reason(error)})", remedy
                ) from error
        return context


def _text(name: str, path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, ValueError) as error:  # ValueError: bytes that are no text, or an impossible path
        problem, remedy = f"cannot be read ({_reason(error)})", "name a readable file that holds the secret"
        raise InputError(PREFIX + name, shown_path(path), problem, remedy) from error


def _reason(error: OSError | ValueError) -> str:
    """The error without the path, which `str(error)` has."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "it is no text"
