"""The life of the webhook's certificates: when a new one is made, which one is served, and which are trusted.

A generation is a certificate authority with the one serving certificate that it signed. Its own key is thrown away
at once, so nothing can sign a second one. Two thirds of a generation's life after it was made, the next is added:
all API servers trust both from then on. The next is served only after `settle_s`, when every replica and every API
server knows it, and the earlier one goes after the same time again. Replicas need not agree on the moment: both are
trusted all the while. What always holds: a served certificate's authority was in the bundle for `settle_s`, unless
there was no other certificate to serve.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

RENEW_AFTER: Final = 2 / 3
"""The part of a generation's life after which the next one is made. The rest is for an outage of the API server."""


@dataclass(frozen=True, slots=True)
class Generation:
    """An authority and its serving certificate. Times are seconds since 1970, UTC.

    Attributes:
        authority: the authority's certificate, PEM.
        certificate: the serving certificate, PEM.
        key: the serving certificate's private key, PEM.
        names: the DNS names and IP addresses that the certificate is for.
        made_s: when the generation was made.
        expires_s: the end of both certificates.
    """

    authority: str
    certificate: str
    key: str
    names: frozenset[str]
    made_s: float
    expires_s: float


@dataclass(frozen=True, slots=True)
class CertificateTiming:
    """The times of a life.

    Attributes:
        life_s: seconds for which a generation is valid.
        settle_s: seconds after which every API server knows a new bundle.
    """

    life_s: float
    settle_s: float


def next_generations(
    kept: tuple[Generation, ...],
    names: frozenset[str],
    now_s: float,
    timing: CertificateTiming,
    make: Callable[[], Generation],
) -> tuple[Generation, ...]:
    """The generations to keep, oldest first; the given ones where nothing is to be done.

    Args:
        kept: the generations that the Secret has, oldest first.
        names: the names that a certificate must be for.
        now_s: now.
        timing: the times of a life.
        make: makes a generation for these names.
    """
    living = tuple(one for one in kept if now_s < one.expires_s)
    for at, one in reversed(tuple(enumerate(living))):
        if one.names >= names and now_s >= one.made_s + 2 * timing.settle_s:
            living = living[at:]
            break
    good = [one for one in living if one.names >= names]
    if not good or now_s >= _renew_s(good[-1]):
        living = (*living, make())
    return kept if living == kept else living


def served(
    kept: tuple[Generation, ...], names: frozenset[str], now_s: float, timing: CertificateTiming
) -> Generation:
    """The generation whose certificate is to be served: the newest that has settled, else the oldest.

    Args:
        kept: the result of `next_generations`.
        names: as there.
        now_s: as there.
        timing: as there.
    """
    good = [one for one in kept if one.names >= names and now_s < one.expires_s]
    settled = [one for one in good if now_s >= one.made_s + timing.settle_s]
    return settled[-1] if settled else good[0]


def bundle(kept: tuple[Generation, ...]) -> str:
    """The certificates that API servers must trust, PEM."""
    return "".join(one.authority for one in kept)


def _renew_s(generation: Generation) -> float:
    return generation.made_s + (generation.expires_s - generation.made_s) * RENEW_AFTER
