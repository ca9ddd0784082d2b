"""The certificates of a connection to an API server: those that it trusts, and the client's own. All of it blocks."""

import contextlib
import ssl
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from plimsoll.kube.context import Cluster, Context, User
from plimsoll.kube.exec_plugin import ExecStatus

NOTHING: Final = " "
"""The text of an empty file. `ssl` refuses it; for an empty text it would trust the authorities of the machine."""


def trusting(cluster: Cluster, folder: Path) -> ssl.SSLContext:
    """Trust the authority that the cluster names, or those of this machine if it names none.

    Raises:
        OSError: there is no such file, or no certificate in it.
        ValueError: the data is no base64.
    """
    pem = None
    if cluster.server.startswith("https"):
        if cluster.certificate_authority_data:
            pem = b64decode(cluster.certificate_authority_data)
        elif cluster.certificate_authority:
            pem = (folder / cluster.certificate_authority).read_bytes()
    # PEM may have remarks between certificates, in any letters; `ssl` takes ASCII alone.
    tls = ssl.create_default_context(cadata=None if pem is None else pem.decode("ascii", "ignore") or NOTHING)
    if cluster.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def mutual(found: Context, status: ExecStatus | None) -> ssl.SSLContext:
    """Trust the server, and show it the user's certificate if there is one.

    Args:
        found: the context, with paths to certificates or their bytes.
        status: the first result of the user's exec plugin, whose certificate counts if it has no token.

    Raises:
        OSError: a file is missing, or has no certificate or not its key.
        ValueError: the data is no base64.
    """
    tls = trusting(found.cluster, found.cluster_file.parent)
    user, folder = _certified(found.user, status), found.user_file.parent
    with (
        _as_file(user.client_certificate_data, user.client_certificate, folder) as certificate,
        _as_file(user.client_key_data, user.client_key, folder) as key,
    ):
        if certificate is not None and found.cluster.server.startswith("https"):
            tls.load_cert_chain(certificate, key)
    return tls


def _certified(user: User, status: ExecStatus | None) -> User:
    if status is None or status.token or not (status.client_certificate_data and status.client_key_data):
        return user
    pair = (status.client_certificate_data, status.client_key_data)
    certificate, key = (b64encode(text.encode()).decode() for text in pair)
    return msgspec.structs.replace(user, client_certificate_data=certificate, client_key_data=key)


@contextlib.contextmanager
def _as_file(data: str | None, path: str | None, folder: Path) -> Iterator[Path | None]:
    """A file with the bytes of `data`, or else the file at `path`: `ssl` reads a client's key from files alone."""
    if not data:
        if path:
            (folder / path).open("rb").close()  # this error names a missing file, that of `ssl` does not
        yield folder / path if path else None
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(b64decode(data))
        file.flush()
        yield Path(file.name)
