"""Certificates change well before they expire, and none is served before every API server trusts it."""

from placer.webhook.core.generations import CertificateTiming, Generation, bundle, next_generations, served

NAMES = frozenset({"a.b.svc"})
TIMING = CertificateTiming(life_s=900.0, settle_s=10.0)


def generation(made_s: float, names: frozenset[str] = NAMES, life_s: float = 900.0) -> Generation:
    """A generation made at this time."""
    return Generation(f"<{made_s:g}>", f"c{made_s:g}", "k", names, made_s, made_s + life_s)


def stepped(kept: tuple[Generation, ...], now_s: float) -> tuple[Generation, ...]:
    """A round at this time."""
    return next_generations(kept, NAMES, now_s, TIMING, lambda: generation(now_s))


def test_the_first_is_made_and_served_at_once() -> None:
    """Without any certificate nothing is to be waited for."""
    kept = stepped((), 5.0)
    assert kept == (generation(5.0),)
    assert served(kept, NAMES, 5.0, TIMING) == kept[0]
    assert stepped(kept, 6.0) is kept


def test_a_life_of_rounds() -> None:
    """Over three lives, each served certificate is valid, was trusted for the settling time, and none is missing."""
    kept: tuple[Generation, ...] = ()
    trusted_since: dict[str, float] = {}
    seen: list[str] = []
    for now in range(2700):
        kept = stepped(kept, float(now))
        for one in kept:
            trusted_since.setdefault(one.authority, now)
        found = served(kept, NAMES, float(now), TIMING)
        assert found in kept
        assert now + 250 < found.expires_s
        assert found.made_s == 0 or now >= trusted_since[found.authority] + TIMING.settle_s
        if found.certificate not in seen[-1:]:
            seen.append(found.certificate)
        assert len(kept) <= 2
    assert seen == ["c0", "c600", "c1200", "c1800", "c2400"]


def test_both_are_trusted_while_they_change() -> None:
    """From the making of the next certificate until twice the settling time, the bundle has both authorities."""
    kept = stepped((generation(0.0),), 600.0)
    assert bundle(kept) == "<0><600>"
    assert served(kept, NAMES, 609.0, TIMING).made_s == 0.0
    assert served(kept, NAMES, 610.0, TIMING).made_s == 600.0
    assert bundle(stepped(kept, 619.0)) == "<0><600>"
    assert bundle(stepped(kept, 620.0)) == "<600>"


def test_clocks_that_differ() -> None:
    """A replica whose clock is behind serves the earlier certificate, and both are trusted."""
    kept = stepped((generation(0.0),), 600.0)
    assert stepped(kept, 540.0) is kept
    assert served(kept, NAMES, 540.0, TIMING).made_s == 0.0


def test_an_expired_certificate_is_replaced_at_once() -> None:
    """After an outage longer than the rest of a life, the new certificate is served without waiting."""
    kept = stepped((generation(0.0),), 900.0)
    assert kept == (generation(900.0),)
    assert served(kept, NAMES, 900.0, TIMING) == kept[0]


def test_other_names_get_a_certificate_of_their_own() -> None:
    """A certificate for other names is not served, and stays trusted for the replicas that still serve it."""
    other = generation(0.0, frozenset({"old"}))
    kept = stepped((other,), 1.0)
    assert bundle(kept) == "<0><1>"
    assert served(kept, NAMES, 1.0, TIMING).made_s == 1.0
    more = generation(0.0, NAMES | {"more"})
    assert stepped((more,), 1.0) == (more,)
