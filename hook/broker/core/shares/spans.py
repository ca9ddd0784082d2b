"""Whether a container that wanted compute time throughout a span got what it was promised."""

from collections.abc import Iterable
from typing import Final

from hook.broker.core.shares.clients import Client, Phase
from hook.broker.core.shares.deadlines import span_end_ns
from hook.broker.core.shares.settings import S, ShareSettings
from hook.broker.core.shares.turns import Unmet

UNMET_PCT: Final = 2.0
"""Points below its request from which a container is told of: the accuracy that shares are held to."""


def begin_span(client: Client, now_ns: int) -> None:
    """From now on it wants, or the last span is over and it still does."""
    client.span_ns, client.span_used_ns, client.span_held_ns = now_ns, client.meter.used_ns, 0


def unmet(clients: Iterable[Client], settings: ShareSettings, now_ns: int) -> list[Unmet]:
    """Whose span is over without its request met; their next one begins."""
    told = []
    for client in clients:
        if client.span_ns and now_ns >= span_end_ns(client, settings):
            # Who is ahead of its due pays now for what it had too much.
            is_behind = max(account.lag_ns for account in client.accounts) > 0
            if is_behind and _got_pct(client, now_ns) < client.terms.request_pct - UNMET_PCT:
                told.append(_tell(client, now_ns))
            begin_span(client, now_ns)
    return told


def _got_pct(client: Client, now_ns: int) -> float:
    """What it used or could have used: who leaves what it holds unused is not kept from anything."""
    held_ns = client.span_held_ns
    if client.phase is not Phase.IDLE:
        held_ns += now_ns - max(client.granted_ns, client.span_ns)
    used_ns = client.meter.used_ns - client.span_used_ns
    return 100 * max(used_ns, held_ns) / (now_ns - client.span_ns)


def _tell(client: Client, now_ns: int) -> Unmet:
    span_ns = now_ns - client.span_ns
    used_pct = 100 * (client.meter.used_ns - client.span_used_ns) / span_ns
    worst = max(client.gpus, key=client.lag_ns)
    return Unmet(client.key, worst.uuid, used_pct, client.terms.request_pct, span_ns / S)
