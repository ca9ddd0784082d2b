"""What was used becomes entries: in the accounts of all its GPUs, in the credit, in the sums for metrics."""

from collections.abc import Iterable
from typing import Final

from hook.broker.core.shares.clients import Astray, Client, Gpu, Phase
from hook.broker.core.shares.settings import MS, S, ShareSettings
from hook.broker.core.shares.tokens import holders

SAVED: Final = 2
"""Least quotas that one with a limit may save up while it idles: enough for a turn of that length whatever the limit,
and with the defaults 2 points of the second in which they are spent."""

LOOK_BACK_NS: Final = S
"""The figure of use is of so long at least: some twenty turns of two, and still of now."""


class Charging:
    """How use is charged, under settings."""

    def __init__(self, settings: ShareSettings) -> None:
        self._enough_ns = settings.quota_least_ms * MS

    def settle(self, gpus: Iterable[Gpu], now_ns: int, *heard: Client) -> None:
        """Charge what was used up to now: to who holds these GPUs, and to others that were heard of."""
        for client in dict.fromkeys([*holders(gpus), *heard]):
            used_ns = client.meter.settle(now_ns)
            self.pay(client, now_ns, used_ns)
            if used_ns:
                self._charge(client, now_ns, used_ns)

    def pay(self, client: Client, now_ns: int, used_ns: int) -> None:
        """Bring its credit up to now."""
        if client.credit is not None:
            # While it is not known whether it runs, its credit is not known to be full.
            unknown_ns = 0 if client.phase is Phase.IDLE else client.meter.unknown_ns(now_ns)
            most_ns = min(client.quota_ns, SAVED * self._enough_ns)
            client.credit.settle(now_ns, used_ns, most_ns + unknown_ns, self._enough_ns)

    @staticmethod
    def used_pct(client: Client, now_ns: int) -> float:
        """What it used since one to two seconds ago, in percent of the time.

        While it drains nobody may look for a while; else whoever used nothing since then has used nothing.
        """
        if client.phase is not Phase.DRAINING and now_ns - client.tally.counted_ns >= 2 * LOOK_BACK_NS:
            return 0.0
        since_ns, used_ns = client.past[0]
        if now_ns <= since_ns:
            return 0.0
        return 100 * max(0, client.meter.used_ns - used_ns) / (now_ns - since_ns)

    def go_astray(self, client: Client, now_ns: int) -> None:
        """Others go on although its work is not done."""
        for process in client.pending:
            client.members[process].is_straggling = True
        client.pending.clear()
        if client.astray is None:
            ledgers_ns = tuple(gpu.ledger.used_ns for gpu in client.gpus)
            lags_ns = tuple(account.lag_ns for account in client.accounts)
            client.astray = Astray(now_ns, client.meter.used_ns, ledgers_ns, lags_ns)

    def come_back(self, client: Client, gpus: Iterable[Gpu], now_ns: int) -> None:
        """Its last straggler said what it used: settle as what it was, one that had work.

        Until now it counted as idle. So it is charged as one that had work, and gets the part of what others used
        beside it that was its due then; less what became its due as one that idled.
        """
        astray, client.astray = client.astray, None
        assert astray is not None
        gained_ns = [
            account.lag_ns - was_ns for account, was_ns in zip(client.accounts, astray.lags_ns, strict=True)
        ]
        client.demand(is_demanding=True)
        self.settle(gpus, now_ns, client)
        used_ns = max(0, client.meter.used_ns - astray.used_ns)
        had_work = min(1.0, used_ns / max(1, now_ns - astray.now_ns))
        for n, (gpu, account) in enumerate(zip(client.gpus, client.accounts, strict=True)):
            others_ns = max(0.0, gpu.ledger.used_ns - astray.ledgers_ns[n] - used_ns)
            gpu.ledger.make_up(account, had_work * others_ns, had_work * max(0.0, gained_ns[n]))

    def _charge(self, client: Client, now_ns: int, used_ns: int) -> None:
        for gpu, account in zip(client.gpus, client.accounts, strict=True):
            gpu.ledger.charge(account, used_ns)
        overrun_ns = 0 if client.phase is Phase.HOLDING else used_ns
        client.tally.count(client.meter.used_ns, overrun_ns, now_ns)
        _measure_gap(client)
        if now_ns - client.past[1][0] >= LOOK_BACK_NS:
            client.past = (client.past[1], (now_ns, client.meter.used_ns))


def _measure_gap(client: Client) -> None:
    """From the last holder's end to the begin of this one's first burst, if that is still seen."""
    if not client.gap_from_ns:
        return
    begun = [client.meter.first_since_ns(process, busy_ns) for process, busy_ns in client.gap_busy.items()]
    if any(begun):
        gap_ns = min(since_ns for since_ns in begun if since_ns) - client.gap_from_ns
        for gpu in client.gpus:
            gpu.quota.measured(gap_ns)
    client.gap_from_ns = 0
