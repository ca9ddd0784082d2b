"""A made generation is what a TLS client expects, and survives its text form."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from placer.webhook.certificate import SKEW, from_text, make_generation, to_text
from plimsoll.part.errors import InputError

NAMES = frozenset({"plimsoll-webhook.plimsoll-system.svc", "127.0.0.1"})


def test_a_client_that_trusts_the_authority_accepts_the_certificate() -> None:
    """By an independent verifier: also with a clock that is an hour behind, and not after its end."""
    now_s = time.time()
    made = make_generation(NAMES, 3600, now_s)
    store = Store([x509.load_pem_x509_certificate(made.authority.encode())])
    certificate = x509.load_pem_x509_certificate(made.certificate.encode())
    subject = x509.DNSName("plimsoll-webhook.plimsoll-system.svc")
    now = datetime.fromtimestamp(int(now_s), UTC)
    for moment in (now, now - SKEW, now + timedelta(hours=1)):
        verifier = PolicyBuilder().store(store).time(moment).build_server_verifier(subject)
        assert len(verifier.verify(certificate, [])) == 2
    late = (
        PolicyBuilder().store(store).time(now + timedelta(hours=1, seconds=1)).build_server_verifier(subject)
    )
    with pytest.raises(x509.verification.VerificationError):
        late.verify(certificate, [])


def test_a_generation_survives_its_text() -> None:
    """A replica reads the certificate that another wrote, with its times and names."""
    made = tuple(make_generation(NAMES, 3600, 1_800_000_000.7 + at) for at in range(2))
    assert from_text(to_text(made)) == made
    assert made[0].names == NAMES
    assert (made[0].made_s, made[0].expires_s) == (1_800_000_000, 1_800_003_600)
    assert made[0].authority != made[1].authority


@pytest.mark.parametrize("text", [b"", b"[]x", b"{}", b'[{"authority":"a","certificate":"b","key":"c"}]'])
def test_a_damaged_text_is_refused(text: bytes) -> None:
    """A Secret that somebody damaged is refused as input, whatever is wrong."""
    with pytest.raises(InputError):
        from_text(text)


def test_another_certificates_key_is_refused() -> None:
    """A pair that does not belong together would break every connection."""
    one, other = (make_generation(NAMES, 3600, 1_800_000_000) for _ in range(2))
    mixed = to_text((one,)).replace(
        one.key.encode().replace(b"\n", b"\\n"), other.key.encode().replace(b"\n", b"\\n")
    )
    with pytest.raises(InputError, match="another certificate's"):
        from_text(mixed)
