"""The parts of the share scheduler by themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook.broker.core.facts import ProcessKey
from hook.broker.core.shares.accounts import Account, Credit, Ledger
from hook.broker.core.shares.gates import next_word, renewed, state_of
from hook.broker.core.shares.meters import Meter
from hook.broker.core.shares.quota import Quota
from hook.broker.core.shares.rates import water_level
from hook.broker.core.shares.settings import MS, ShareSettings
from hook.broker.core.shares.turns import GateState, Use
from plimsoll.layout import GATE_CONTENDED, GATE_STEP

P, Q = ProcessKey(1, 1), ProcessKey(2, 1)


@st.composite
def bounds(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Requests that sum to at most 1, with limits not below them."""
    weights = draw(st.lists(st.floats(0, 1), min_size=1, max_size=30))
    total = max(1.0, sum(weights))
    return [(weight / total, draw(st.floats(weight / total, 1))) for weight in weights]


@given(bounds())
def test_rates_fill_the_gpu_at_one_level(pairs: list[tuple[float, float]]) -> None:
    """All is divided unless all are at their limits; each is within its bounds, and who is at neither is level."""
    rates = water_level(pairs, 1.0)
    assert sum(rates) == pytest.approx(min(1.0, sum(most for _, most in pairs)))
    free = [r for r, (least, most) in zip(rates, pairs, strict=True) if least + 1e-9 < r < most - 1e-9]
    for rate, (least, most) in zip(rates, pairs, strict=True):
        assert least - 1e-9 <= rate <= most + 1e-9
        # Whoever has more than the level has no more than its request; whoever has less is at its limit.
        assert all(rate <= level + 1e-9 or rate <= least + 1e-9 for level in free)
        assert all(rate >= level - 1e-9 or rate >= most - 1e-9 for level in free)


def test_the_rates_of_figure_6() -> None:
    """KubeShare, Figure 6: alone 0.6; two at 0.5 each; three at their requests."""
    a, b, c = (0.3, 0.6), (0.4, 0.6), (0.3, 0.5)
    assert water_level([a], 1.0) == [0.6]
    assert water_level([a, b], 1.0) == pytest.approx([0.5, 0.5])
    assert water_level([a, b, c], 1.0) == pytest.approx([0.3, 0.4, 0.3])


def ledger(*requests: float) -> Ledger:
    """Accounts of which all have work."""
    made = Ledger()
    for request in requests:
        account = Account(request, 1.0, request * 250 * MS, made, is_demanding=True)
        account.siblings = (account,)
        account.set_presence(is_present=True)
        made.add(account)
    return made


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-(10**8), 10**9), st.booleans()), max_size=50))
def test_lags_cancel_out(uses: list[tuple[int, int, bool]]) -> None:
    """Whoever uses whatever, corrections included, and whoever idles meanwhile."""
    made = ledger(0.2, 0.3, 0.0)
    for number, used_ns, is_demanding in uses:
        made.accounts[(number + 1) % 3].set_demand(is_demanding=is_demanding)
        made.charge(made.accounts[number], used_ns)
        assert abs(sum(account.lag_ns for account in made.accounts)) < 1


def test_an_idle_one_keeps_its_claim_and_no_more() -> None:
    """However long others use the GPU, it is behind by its request of one window."""
    made = ledger(0.2, 0.5)
    idle, busy = made.accounts
    idle.set_demand(is_demanding=False)
    for _ in range(100):
        made.charge(busy, 100 * MS)
    assert idle.lag_ns == pytest.approx(50 * MS)
    assert busy.lag_ns == pytest.approx(-50 * MS)


def test_one_that_was_never_there_has_no_claim() -> None:
    """A container without a process is owed nothing for the time in which others ran."""
    made = ledger(0.2, 0.5)
    absent, busy = made.accounts
    absent.set_demand(is_demanding=False)
    absent.set_presence(is_present=False)
    made.charge(busy, 100 * MS)
    assert absent.lag_ns == busy.lag_ns == 0


def test_what_is_owed_no_more_lessens_debts_in_proportion() -> None:
    """Of 90 ms above the most it may be owed, one that owes twice as much as another is spared 60."""
    made = ledger(0.2, 0.3, 0.3, 0.2)
    owed, third, *debtors = made.accounts
    for account, lag_ns in zip(made.accounts, (120 * MS, 60 * MS, -120 * MS, -60 * MS), strict=True):
        account.lag_ns = lag_ns
    made.cut(owed, 30 * MS)
    assert [account.lag_ns for account in (owed, third, *debtors)] == pytest.approx(
        [30 * MS, 60 * MS, -60 * MS, -30 * MS]
    )
    made.cut(owed, 40 * MS)
    assert owed.lag_ns == pytest.approx(30 * MS)


def test_who_leaves_shares_out_what_it_owes() -> None:
    """Its lag goes to the rest in equal parts."""
    made = ledger(0.2, 0.3, 0.5)
    made.charge(made.accounts[0], 300 * MS)
    behind_ns = [account.lag_ns for account in made.accounts[1:]]
    owed_ns = made.accounts[0].lag_ns
    made.remove(made.accounts[0])
    assert [account.lag_ns for account in made.accounts] == pytest.approx(
        [lag_ns + owed_ns / 2 for lag_ns in behind_ns]
    )


def test_a_credit_is_bounded_above_and_not_below() -> None:
    """Idling saves up one quota; a long kernel is paid for in full before the next turn."""
    credit = Credit(0.5, 0.0, 0)
    credit.settle(1000 * MS, 0, 30 * MS, 10 * MS)
    assert credit.credit_ns == 30 * MS
    credit.settle(1200 * MS, 200 * MS, 30 * MS, 10 * MS)
    assert credit.credit_ns == -70 * MS
    assert credit.is_spent
    back_ns = round(credit.recovers_ns(10 * MS))
    credit.settle(1200 * MS + back_ns - 1, 0, 30 * MS, 10 * MS)
    assert credit.is_spent
    credit.settle(1200 * MS + back_ns + 1, 0, 30 * MS, 10 * MS)
    assert not credit.is_spent


def test_a_burst_under_way_counts_and_is_corrected() -> None:
    """What was taken too much while nobody knew is given back."""
    meter = Meter()
    meter.mark(0)
    meter.read(P, Use(0, 10 * MS))
    assert meter.settle(100 * MS) == 90 * MS
    meter.read(P, Use(20 * MS))
    assert meter.settle(100 * MS) == -70 * MS
    assert meter.used_ns == 20 * MS


def test_nobody_is_believed_beyond_what_can_be() -> None:
    """No more than the time that passed, and ended bursts never shrink."""
    meter = Meter()
    meter.mark(0)
    meter.read(P, Use(10**15))
    assert meter.settle(100 * MS) == 100 * MS
    meter.read(P, Use(0))
    assert meter.settle(200 * MS) == 0


def test_processes_at_work_at_once_count_once() -> None:
    """And when one of them turns out to have had less, the other's use still counts."""
    meter = Meter()
    meter.mark(0)
    meter.read(P, Use(0, 1))
    meter.read(Q, Use(0, 1))
    assert meter.settle(1000 * MS) == 1000 * MS
    meter.read(P, Use(50 * MS))
    assert meter.settle(1000 * MS) == 0
    assert meter.used_ns == 1000 * MS


def test_a_frozen_burst_counts_when_it_is_known() -> None:
    """Nothing is taken for it meanwhile; all of it in the end."""
    meter = Meter()
    meter.mark(0)
    meter.read(P, Use(0, 1))
    meter.settle(1000 * MS)
    meter.freeze(P)
    meter.mark(2000 * MS)
    assert meter.settle(3000 * MS) == 0
    meter.read(P, Use(4000 * MS))
    assert meter.settle(4000 * MS) == pytest.approx(3000 * MS, abs=1)


@given(st.integers(0, 2**32 - 1), st.sampled_from(GateState), st.booleans())
def test_words_step(word: int, state: GateState, is_contended: bool) -> None:  # noqa: FBT001 - drawn
    """A word that says something else is one step on, modulo 2³²; one that says the same is the same."""
    new = next_word(word, state, is_contended=is_contended)
    assert state_of(new) is state
    assert bool(new & GATE_CONTENDED) is is_contended
    if new != word:
        assert new // GATE_STEP == (word // GATE_STEP + 1) % (2**32 // GATE_STEP)
    assert next_word(new, state, is_contended=is_contended) == new
    assert renewed(new) != new
    assert renewed(new) % GATE_STEP == new % GATE_STEP


def test_a_quota_adapts_between_its_bounds() -> None:
    """A hundred gaps; stray long ones, and impossible ones, are not hand-overs."""
    quota = Quota(ShareSettings())
    assert quota.quota_ns == 30 * MS
    for _ in range(100):
        quota.measured(500_000)
        quota.measured(-1)
        quota.measured(1000 * MS)
    assert quota.quota_ns == pytest.approx(50 * MS, rel=0.01)
    for _ in range(100):
        quota.measured(5 * MS)
    assert quota.quota_ns == 160 * MS
    for _ in range(100):
        quota.measured(0)
    assert quota.quota_ns == 10 * MS
