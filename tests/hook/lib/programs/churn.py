"""Threads that take from one pool and give to it in different orders."""

import threading

from tests.hook.lib.programs.calls import context, default_pool, free, hold_all, make, must, take
from tests.programs.cuda import MIB

ROUNDS = 300


def churn(seed: int) -> int:
    """Allocates pieces of many sizes and frees them three at a time: how many there were."""
    context(0)
    stream = make("cuStreamCreate", 1)
    kept: list[int] = []
    count = 0
    for number in range(ROUNDS):
        code, address = take((seed * 7919 + number * 104729) % (48 * MIB) + 1, stream)
        if code == 0:
            kept.append(address)
            count += 1
        if len(kept) > 2 or code:
            for one in kept:
                free(one, stream)
            kept = []
        if number % 17 == 0:
            must("cuStreamSynchronize", stream)
    for one in kept:
        free(one, stream)
    return count


def churn_together(count: int) -> list[int]:
    """This many threads at once: what each allocated."""
    hold_all(default_pool())
    made: list[int] = []
    threads = [threading.Thread(target=lambda seed=seed: made.append(churn(seed))) for seed in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made
