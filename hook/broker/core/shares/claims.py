"""Whether the claim of a container that pauses is worth the idle time that it costs.

A container that pauses saves up a claim while it wants nothing. To hold others for this claim helps a program whose
next kernel waits for the end of the last: it runs more. It does not help a program that computes what others ask of
it: it runs the same, and the GPU idles. At any one moment both look alike, so the broker tries.

The worth is the idle time that the claim may still cost. While the claim counts, the worth sinks by the idle time
in which others are held for it, and grows by PRICE times what the container runs beyond its usual. When nothing is
left, the claim counts no more until the worth has grown to TRY again. So a claim that buys nothing costs TRIALS ×
request³ of the time in the mean, however much the container's use varies: without a gain, the worth loses what the
GPU idles.

There are two measures of what the container runs, and the claim must be worth its cost by both. The charges are
means, and are too high by a tenth where the bursts of two processes overlap in part. The first slices of bursts are
exact, but fall where requests queue up and are served in one burst.
"""

from dataclasses import dataclass, field

from hook.broker.core.shares.settings import PRICE, TRIALS, TRY_NS, USUAL_NS, WORTH_NS


@dataclass(eq=False, slots=True)
class Worth:
    """The worth of a claim by one measure of what its owner runs.

    Attributes:
        usual: what the owner runs as a part of the time, mostly while its claim does not count; 0 to 1.
        worth_ns: see the module.
    """

    usual: float = 0.0
    worth_ns: float = TRY_NS

    def weigh(self, gain_ns: float, learned_ns: float, earned_ns: float) -> None:
        """Enter a tick.

        Args:
            gain_ns: what the owner ran beyond its usual.
            learned_ns: the time over which the usual is a mean, this tick included.
            earned_ns: the change of the worth.
        """
        self.usual += gain_ns / learned_ns
        worth_ns = self.worth_ns + earned_ns
        self.worth_ns = 0.0 if worth_ns < 0 else min(worth_ns, WORTH_NS)


@dataclass(eq=False, slots=True)
class Claim:
    """The claim of a container on a GPU.

    Attributes:
        by_charges, by_firsts: its worth by the charges, and by the first slices of bursts.
        usual_ns: the time from which the usual was learned, without the ticks in which the claim counted.
        counts: others may be held for the claim although its owner pauses.
        cost_ns: the time in this tick in which the GPU idled while others were held for the claim.
    """

    by_charges: Worth = field(default_factory=Worth)
    by_firsts: Worth = field(default_factory=Worth)
    usual_ns: float = 0.0
    counts: bool = True
    cost_ns: float = 0.0

    def weigh(self, charge_ns: float, first_ns: float, request: float, span_ns: int) -> None:
        """Enter a tick.

        Args:
            charge_ns: what the GPU ran of the owner.
            first_ns: the part of that in first slices.
            request: the owner's request, 0 to 1, but not 0.
            span_ns: the length of the tick.
        """
        charges, firsts = self.by_charges, self.by_firsts
        earned_ns, price, learned_ns = TRIALS * request**3 * span_ns - self.cost_ns, 0.0, USUAL_NS
        if not self.counts:
            learned_ns = self.usual_ns = min(self.usual_ns + span_ns, USUAL_NS)
        elif self.usual_ns:
            price = PRICE
        more_ns, more_firsts_ns = charge_ns - charges.usual * span_ns, first_ns - firsts.usual * span_ns
        each = charges.usual / firsts.usual if firsts.usual else 1.0
        charges.weigh(more_ns, learned_ns, earned_ns + price * more_ns)
        firsts.weigh(more_firsts_ns, learned_ns, earned_ns + price * each * more_firsts_ns)
        least_ns = min(charges.worth_ns, firsts.worth_ns)
        self.counts = least_ns > 0 if self.counts else least_ns >= TRY_NS
        self.cost_ns = 0.0
