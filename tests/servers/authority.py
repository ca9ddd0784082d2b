"""An authority of a test's own, and the certificates that it signs for 127.0.0.1."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates in a folder."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def path(self) -> str:
        """Its certificate's file."""
        return str(self.folder / f"{self.name}.crt")

    def sign(self, common_name: str, file: str) -> tuple[str, str]:
        """The files of a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(common_name, key, self.certificate.subject, self.key, is_authority=False)
        certificate, private = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        private.write_bytes(key.private_bytes(encoding, form, plain))
        return str(certificate), str(private)


def authority(folder: Path, name: str) -> Authority:
    """A new authority with its file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = Authority(folder, name, key, _certificate(name, key, subject, key, is_authority=True))
    Path(made.path).write_bytes(made.certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    return builder.add_extension(address, critical=False).sign(issuer_key, hashes.SHA256())
