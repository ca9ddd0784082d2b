/* Reserve by adding to one's own word, then sum everybody's, and withdraw if the sum passes the line.
 *
 * Why the line holds. Take any moment and the reservations that stand then; consider the one added last.
 * All others had been added before it and are standing still, so its own sum counted every one of them, and
 * it stayed only because that sum was within the line. This needs nothing but a single order of all adds and
 * loads (sequential consistency), and no process ever writes another's word, so a `kill -9` between any two
 * instructions leaves at worst a word that is too large, in a slot whose owner is dead.
 *
 * The price: two that would fit one at a time may each see the other's add and both withdraw. Therefore a
 * loser tries again, after a pause that doubles with each round, plus its place among the processes: the
 * lower slot goes first and finds the higher one withdrawn. An add that must be withdrawn normally stands for
 * less than a microsecond, but its process may lose the processor just then; so the pauses outlast a time
 * slice. A true refusal costs them all: 4 ms where several processes share the line, 30 us where there is
 * only one.
 */
#include "ledger.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define PAUSE_NS 2000
#define ROUNDS 11      /* 2 us * (2^11 - 1) = 4 ms */
#define ROUNDS_ALONE 4 /* only threads of this process can collide, and they come here one at a time */
/* From here on a pause is slept: whoever is being waited for may need this very processor. */
#define SLEPT_NS 50000

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint64_t add_saturating(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t plimsoll_ledger_used(const struct plimsoll_counts *counts, unsigned gpu) {
    uint32_t touched = __atomic_load_n(&counts->slots_touched, __ATOMIC_SEQ_CST);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < touched && i < PLIMSOLL_MAX_SLOTS; i++)
        sum = add_saturating(sum, load(&counts->slots[i].used_bytes[gpu]));
    return sum;
}

static bool try_reserve(struct plimsoll_counts *counts, uint64_t *own, unsigned gpu, uint64_t bytes,
                        uint64_t line_bytes) {
    __atomic_fetch_add(own, bytes, __ATOMIC_SEQ_CST);
    if (plimsoll_ledger_used(counts, gpu) <= line_bytes)
        return true;
    __atomic_fetch_sub(own, bytes, __ATOMIC_SEQ_CST);
    return false;
}

static void pause_ns(long duration_ns) {
    struct timespec start, now, left = {.tv_nsec = duration_ns};
    if (duration_ns >= SLEPT_NS) {
        int saved = errno;
        nanosleep(&left, NULL); /* a signal only makes the next try come sooner */
        errno = saved;
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000L + (now.tv_nsec - start.tv_nsec) < duration_ns);
}

bool plimsoll_ledger_reserve(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes,
                             uint64_t line_bytes) {
    uint64_t *own = &counts->slots[slot].used_bytes[gpu];
    if (line_bytes == PLIMSOLL_NO_LINE) {
        __atomic_fetch_add(own, bytes, __ATOMIC_SEQ_CST);
        return true;
    }
    /* More than the line is refused unseen, which also keeps an absurd size from wrapping the word. */
    return bytes <= line_bytes && try_reserve(counts, own, gpu, bytes, line_bytes);
}

static unsigned processes_below(const struct plimsoll_counts *counts, uint32_t end) {
    unsigned count = 0;
    for (uint32_t i = 0; i < end && i < PLIMSOLL_MAX_SLOTS; i++)
        count += load(&counts->slots[i].owner) != 0;
    return count;
}

bool plimsoll_ledger_retry(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes,
                           uint64_t line_bytes) {
    long turn_ns = (long)processes_below(counts, slot) * PAUSE_NS;
    bool is_alone = processes_below(counts, __atomic_load_n(&counts->slots_touched, __ATOMIC_SEQ_CST)) <= 1;
    int rounds = bytes > line_bytes ? 0 : is_alone ? ROUNDS_ALONE : ROUNDS;
    for (int round = 0; round < rounds; round++) {
        pause_ns(((long)PAUSE_NS << round) + turn_ns);
        if (plimsoll_ledger_reserve(counts, slot, gpu, bytes, line_bytes))
            return true;
    }
    return false;
}

void plimsoll_ledger_give_back(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes) {
    __atomic_fetch_sub(&counts->slots[slot].used_bytes[gpu], bytes, __ATOMIC_SEQ_CST);
}

static void raise_touched(struct plimsoll_counts *counts, uint32_t least) {
    uint32_t seen = __atomic_load_n(&counts->slots_touched, __ATOMIC_SEQ_CST);
    while (seen < least && !__atomic_compare_exchange_n(&counts->slots_touched, &seen, least, false,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

/* An exec keeps pid and start time but not the GPU memory: the old image's words are worth nothing now. */
static int slot_of(struct plimsoll_counts *counts, uint64_t owner) {
    for (int i = 0; i < (int)PLIMSOLL_MAX_SLOTS; i++)
        if (load(&counts->slots[i].owner) == owner)
            return i;
    return -1;
}

static int take_free_slot(struct plimsoll_counts *counts, uint64_t owner) {
    for (int i = 0; i < (int)PLIMSOLL_MAX_SLOTS; i++) {
        uint64_t expected = 0;
        if (__atomic_compare_exchange_n(&counts->slots[i].owner, &expected, owner, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return i;
    }
    return -1;
}

int plimsoll_ledger_claim(struct plimsoll_counts *counts, uint64_t owner) {
    int slot = slot_of(counts, owner);
    if (slot < 0)
        slot = take_free_slot(counts, owner);
    if (slot < 0)
        return -1;
    for (unsigned gpu = 0; gpu < PLIMSOLL_MAX_GPUS; gpu++)
        __atomic_store_n(&counts->slots[slot].used_bytes[gpu], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&counts->slots[slot].denied_count, 0, __ATOMIC_SEQ_CST);
    raise_touched(counts, (uint32_t)slot + 1);
    return slot;
}
