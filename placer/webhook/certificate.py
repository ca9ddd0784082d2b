"""Makes generations of certificates, and keeps them as text: `cryptography` stands here alone.

What always holds: an authority signs one certificate, and its key is never written anywhere. Certificates begin
`SKEW` before they are made, so that an API server whose clock is behind accepts them.
"""

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from placer.webhook.core.generations import Generation
from plimsoll.part.errors import InputError

SKEW: Final = timedelta(hours=1)
"""Clocks of one cluster differ by less."""


class _Kept(msgspec.Struct):
    """A generation as the Secret has it; everything else is read from the certificate."""

    authority: str
    certificate: str
    key: str


def make_generation(names: frozenset[str], life_s: float, now_s: float) -> Generation:
    """A new authority and serving certificate, with P-256 keys.

    Args:
        names: DNS names and IP addresses.
        life_s: seconds for which both are valid from now on.
        now_s: now, in seconds since 1970.
    """
    now = datetime.fromtimestamp(int(now_s), UTC)
    end = now + timedelta(seconds=int(life_s))
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _authority(authority_key, now, end)
    certificate = (
        _serving(names, key.public_key(), authority, now, end)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    kept = _Kept(
        authority.public_bytes(pem).decode(), certificate.public_bytes(pem).decode(), private.decode()
    )
    return _generation(kept)


def to_text(generations: tuple[Generation, ...]) -> bytes:
    """The generations as one JSON text, oldest first."""
    return msgspec.json.encode([_Kept(one.authority, one.certificate, one.key) for one in generations])


def from_text(text: bytes) -> tuple[Generation, ...]:
    """The generations of such a text.

    Raises:
        InputError: the text is damaged.
    """
    try:
        return tuple(_generation(one) for one in msgspec.json.decode(text, type=list[_Kept]))
    except (msgspec.MsgspecError, ValueError, x509.ExtensionNotFound) as error:
        problem = f"holds no certificates ({error})"
        raise InputError("generations", text[:16], problem, "delete the Secret") from error


def _generation(kept: _Kept) -> Generation:
    certificate = x509.load_pem_x509_certificate(kept.certificate.encode())
    x509.load_pem_x509_certificate(kept.authority.encode())
    key = serialization.load_pem_private_key(kept.key.encode(), password=None)
    if key.public_key() != certificate.public_key():
        raise ValueError("the key is another certificate's")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return Generation(
        authority=kept.authority,
        certificate=kept.certificate,
        key=kept.key,
        names=frozenset(str(one.value) for one in names),
        made_s=(certificate.not_valid_before_utc + SKEW).timestamp(),
        expires_s=certificate.not_valid_after_utc.timestamp(),
    )


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime) -> x509.Certificate:
    """The certificate of an authority, signed by itself."""
    serial = x509.random_serial_number()
    # Each authority has a name of its own, so that no client takes one for another.
    name = _name(f"plimsoll-webhook-authority-{serial:x}"[:64])
    return (
        _builder(name, name, now, end)
        .serial_number(serial)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _serving(
    names: frozenset[str],
    key: ec.EllipticCurvePublicKey,
    authority: x509.Certificate,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    """The certificate of a server with these names, to be signed by the authority."""
    alternatives = x509.SubjectAlternativeName([_general(name) for name in sorted(names)])
    return (
        _builder(_name("plimsoll-webhook"), authority.subject, now, end)
        .serial_number(x509.random_serial_number())
        .public_key(key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
    )


def _builder(subject: x509.Name, issuer: x509.Name, now: datetime, end: datetime) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    return builder.not_valid_before(now - SKEW).not_valid_after(end)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
