/* A process reserves by adding to its own word. Then it sums all words, and withdraws if the sum passes the
 * line.
 *
 * Why the line holds. Take any moment and the reservations that stand then, and consider the one added last.
 * All others had been added before and still stand, so its sum counted every one of them, and it stayed only
 * because that sum was within the line. This needs nothing but a single order of all adds and loads
 * (sequential consistency). No process ever writes another's word. So a `kill -9` between any two
 * instructions leaves at worst a word that is too large, in a slot whose owner is dead.
 *
 * A process that was found dead holds no memory, so its word may be left out, but never the word of another
 * process in the same slot. The owner is therefore loaded with each sum, after the process's own add. A
 * process that claims the slot later also adds later, and then the sum of that process counts both.
 *
 * Why the line holds while it sinks. The broker writes the lower number, closes it with a new generation, and
 * then sums the words. A reservation is kept only if the generation, loaded after the add and the sum, is
 * still the one under which its ceiling was read. So either the process meets the new number, or the broker's
 * sum meets the process's word.
 *
 * The price of having no lock: two reservations that would fit one at a time may each see the other's add,
 * and both withdraw. Each process therefore marks its slot while it tries (`attempts`). A process that finds
 * the line passed sums once more between two reads of those marks. If nobody else was trying in all that
 * time, the sum consists of memory that is really held: the refusal is true, and is reported at once.
 *
 * Otherwise the sum may have been a collision. The loser tries again after a pause, which doubles with each
 * round and grows with its place among the processes: the lower slot goes first and finds the higher one
 * withdrawn. An add that must be withdrawn normally stands for less than a microsecond, but its process may
 * lose the processor just then. So the pauses outlast a time slice, 4 ms in all. If every read until then
 * shows an attempt, the line is full, or a process died while trying.
 */
#include "memory/ledger.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#include "clock.h"
#include "memory/bytes.h"

#define PAUSE_NS 2000
#define ROUNDS 11 /* 2 us * (2^11 - 1) = 4 ms */
/* A pause from this length on is slept, because the process that is waited for may need this very
 * processor. */
#define SLEPT_NS 50000

/* The two halves of `attempts`. */
#define ATTEMPT_BEGUN (1ull << 32 | 1)
#define ATTEMPT_SETTLED 1ull
#define ATTEMPTS_NOW(attempts) ((uint32_t)(attempts))
#define ATTEMPTS_EVER(attempts) ((attempts) >> 32)

static uint64_t load(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

uint32_t plimsoll_ledger_slots(const struct plimsoll_counts *counts) {
    uint32_t touched = __atomic_load_n(&counts->slots_touched, __ATOMIC_SEQ_CST);
    return touched < PLIMSOLL_MAX_SLOTS ? touched : PLIMSOLL_MAX_SLOTS;
}

static bool is_dead(const struct plimsoll_counts *counts, uint32_t slot, const struct plimsoll_dead *dead) {
    return dead && dead->owners[slot] && load(&counts->slots[slot].owner) == dead->owners[slot];
}

uint64_t plimsoll_ledger_used_but(const struct plimsoll_counts *counts, unsigned gpu,
                                  const struct plimsoll_dead *dead) {
    uint32_t touched = plimsoll_ledger_slots(counts);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < touched; i++)
        if (!is_dead(counts, i, dead))
            sum = plimsoll_plus(sum, load(&counts->slots[i].used_bytes[gpu]));
    return sum;
}

#define WORD_BITS 64u

static uint32_t exports_touched(const struct plimsoll_exports *exports) {
    uint32_t touched = exports ? __atomic_load_n(&exports->touched, __ATOMIC_SEQ_CST) : 0;
    return touched < PLIMSOLL_MAX_EXPORTS ? touched : PLIMSOLL_MAX_EXPORTS;
}

static bool is_left_out(const struct plimsoll_dead *dead, uint64_t owner) {
    for (uint32_t i = 0; dead && i < PLIMSOLL_MAX_SLOTS; i++)
        if (dead->owners[i] == owner)
            return true;
    return false;
}

static bool is_orphaned(const struct plimsoll_export *piece, const struct plimsoll_dead *dead) {
    uint32_t state = __atomic_load_n(&piece->state, __ATOMIC_SEQ_CST);
    return state == PLIMSOLL_EXPORT_ORPHANED ||
           (state == PLIMSOLL_EXPORT_LIVE && is_left_out(dead, load(&piece->owner)));
}

/* The first slot that imports a piece counts for all. */
static uint64_t orphaned_in(const struct plimsoll_exports *exports, uint32_t word, uint64_t imported,
                            unsigned gpu, const struct plimsoll_dead *dead) {
    uint64_t sum = 0;
    for (; imported; imported &= imported - 1) {
        const struct plimsoll_export *piece =
            &exports->exports[word * WORD_BITS + (unsigned)__builtin_ctzll(imported)];
        if (__atomic_load_n(&piece->gpu, __ATOMIC_RELAXED) == gpu && is_orphaned(piece, dead))
            sum = plimsoll_plus(sum, load(&piece->bytes));
    }
    return sum;
}

uint64_t plimsoll_ledger_orphaned(const struct plimsoll_exports *exports,
                                  const struct plimsoll_counts *counts, unsigned gpu,
                                  const struct plimsoll_dead *dead) {
    uint32_t touched = exports_touched(exports), slots = plimsoll_ledger_slots(counts);
    uint64_t sum = 0;
    for (uint32_t word = 0; word * WORD_BITS < touched; word++) {
        uint64_t imported = 0;
        for (uint32_t slot = 0; slot < slots; slot++)
            if (!is_dead(counts, slot, dead))
                imported |= load(&exports->imports[slot].words[word]);
        sum = plimsoll_plus(sum, orphaned_in(exports, word, imported, gpu, dead));
    }
    return sum;
}

/* An odd generation just above means that the next one is being written. Its writer sums when it is done, and
 * until then the numbers before it hold. */
static bool is_current(const struct plimsoll_ceiling *ceiling) {
    uint64_t now = load(ceiling->generation);
    return now == ceiling->seen || now == ceiling->seen + 1;
}

struct attempts {
    uint32_t touched;
    bool is_quiet; /* only `self` was trying, once */
    uint64_t ever[PLIMSOLL_MAX_SLOTS];
};

/* A slot without a living owner tries nothing, whatever a process that died in it left behind. */
static void note_attempts(const struct plimsoll_counts *counts, unsigned self,
                          const struct plimsoll_dead *dead, struct attempts *noted) {
    noted->touched = plimsoll_ledger_slots(counts);
    noted->is_quiet = true;
    for (uint32_t i = 0; i < noted->touched; i++) {
        uint64_t attempts = load(&counts->slots[i].attempts);
        uint32_t others = ATTEMPTS_NOW(attempts) - (i == self);
        noted->ever[i] = ATTEMPTS_EVER(attempts);
        noted->is_quiet = noted->is_quiet &&
                          (others == 0 || load(&counts->slots[i].owner) == 0 || is_dead(counts, i, dead));
    }
}

static bool was_quiet_since(const struct plimsoll_counts *counts, const struct attempts *noted) {
    bool is_quiet = noted->is_quiet;
    for (uint32_t i = 0; i < noted->touched && is_quiet; i++)
        is_quiet = ATTEMPTS_EVER(load(&counts->slots[i].attempts)) == noted->ever[i];
    return is_quiet && plimsoll_ledger_slots(counts) == noted->touched;
}

static bool is_past(const struct plimsoll_counts *counts, unsigned gpu, uint64_t bytes,
                    const struct plimsoll_ceiling *ceiling) {
    uint64_t used_bytes = plimsoll_ledger_used_but(counts, gpu, ceiling->dead);
    used_bytes =
        plimsoll_plus(used_bytes, plimsoll_ledger_orphaned(ceiling->exports, counts, gpu, ceiling->dead));
    return plimsoll_plus(used_bytes, bytes) > ceiling->most_bytes;
}

/* The attempt is marked. Decides whether `bytes` fit beside all words. */
static enum plimsoll_verdict judge(const struct plimsoll_counts *counts, unsigned slot, unsigned gpu,
                                   uint64_t bytes, const struct plimsoll_ceiling *ceiling) {
    struct attempts noted;
    enum plimsoll_verdict verdict = VERDICT_FITS;
    if (is_past(counts, gpu, bytes, ceiling)) {
        note_attempts(counts, slot, ceiling->dead, &noted);
        if (is_past(counts, gpu, bytes, ceiling))
            verdict = was_quiet_since(counts, &noted) ? VERDICT_PAST : VERDICT_COLLIDED;
    }
    return is_current(ceiling) ? verdict : VERDICT_CHANGED;
}

/* Stored before the change, never after it. A new time beside an old word only makes a measurement be taken
 * again. An old time beside a new word would let a wrong measurement pass. */
static void stamp(struct plimsoll_slot *slot) {
    __atomic_store_n(&slot->changed_ns, plimsoll_now_ns(), __ATOMIC_SEQ_CST);
}

void plimsoll_ledger_add(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes) {
    stamp(&counts->slots[slot]);
    __atomic_fetch_add(&counts->slots[slot].used_bytes[gpu], bytes, __ATOMIC_SEQ_CST);
}

/* Two loads, unless this is the largest use so far. */
void plimsoll_ledger_note_peak(struct plimsoll_counts *counts, unsigned slot, unsigned gpu) {
    if (gpu >= PLIMSOLL_PEAK_GPUS)
        return;
    uint64_t *word = &counts->slots[slot].peak_bytes[gpu];
    uint64_t used_bytes = __atomic_load_n(&counts->slots[slot].used_bytes[gpu], __ATOMIC_RELAXED);
    uint64_t peak_bytes = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (peak_bytes < used_bytes && !__atomic_compare_exchange_n(word, &peak_bytes, used_bytes, false,
                                                                   __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

enum plimsoll_verdict plimsoll_ledger_reserve(struct plimsoll_counts *counts, unsigned slot, unsigned gpu,
                                              uint64_t bytes, const struct plimsoll_ceiling *ceiling) {
    uint64_t *attempts = &counts->slots[slot].attempts;
    /* a request above the ceiling is refused without a sum, which also keeps an absurd size from wrapping the
     * word */
    if (bytes > ceiling->most_bytes)
        return is_current(ceiling) ? VERDICT_PAST : VERDICT_CHANGED;
    __atomic_fetch_add(attempts, ATTEMPT_BEGUN, __ATOMIC_SEQ_CST);
    /* A request that cannot fit stays out of the words, where it would stand in the way of smaller ones. */
    enum plimsoll_verdict verdict = judge(counts, slot, gpu, bytes, ceiling);
    if (verdict == VERDICT_FITS) {
        plimsoll_ledger_add(counts, slot, gpu, bytes);
        verdict = judge(counts, slot, gpu, 0, ceiling);
        if (verdict != VERDICT_FITS)
            plimsoll_ledger_give_back(counts, slot, gpu, bytes);
    }
    __atomic_fetch_sub(attempts, ATTEMPT_SETTLED, __ATOMIC_SEQ_CST);
    return verdict;
}

static void pause_ns(uint64_t duration_ns) {
    if (duration_ns >= SLEPT_NS) {
        int saved = errno;
        nanosleep(&(struct timespec){.tv_nsec = (long)duration_ns}, NULL); /* a signal only ends it sooner */
        errno = saved;
        return;
    }
    const uint64_t begun_ns = plimsoll_now_ns();
    do
        sched_yield();
    while (plimsoll_now_ns() - begun_ns < duration_ns);
}

static unsigned processes_below(const struct plimsoll_counts *counts, uint32_t end) {
    unsigned count = 0;
    for (uint32_t i = 0; i < end && i < PLIMSOLL_MAX_SLOTS; i++)
        count += load(&counts->slots[i].owner) != 0;
    return count;
}

bool plimsoll_ledger_pause(const struct plimsoll_counts *counts, unsigned slot, unsigned round) {
    if (round >= ROUNDS)
        return false;
    pause_ns(((uint64_t)PAUSE_NS << round) + (uint64_t)processes_below(counts, slot) * PAUSE_NS);
    return true;
}

void plimsoll_ledger_give_back(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes) {
    stamp(&counts->slots[slot]);
    __atomic_fetch_sub(&counts->slots[slot].used_bytes[gpu], bytes, __ATOMIC_SEQ_CST);
}

static void raise_touched(struct plimsoll_counts *counts, uint32_t least) {
    uint32_t seen = __atomic_load_n(&counts->slots_touched, __ATOMIC_SEQ_CST);
    while (seen < least && !__atomic_compare_exchange_n(&counts->slots_touched, &seen, least, false,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

/* An exec keeps pid and start time but not the GPU memory: the words of the old image mean nothing now. A
 * slot that the broker is about to clear for that reason is left to the broker. The broker sets `is_vacating`
 * before it checks whether this process maps `counts`. This process mapped `counts` before it reads the mark
 * here. So at least one of them sees the other. */
static int slot_of(struct plimsoll_counts *counts, uint64_t owner) {
    for (int i = 0; i < (int)PLIMSOLL_MAX_SLOTS; i++)
        if (load(&counts->slots[i].owner) == owner && !load(&counts->slots[i].is_vacating))
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

/* Readers ignore the words until the owner stands there. */
static void clear_work(struct plimsoll_slot_work *work, uint64_t owner) {
    uint64_t *words = (uint64_t *)(void *)work->gpus;
    __atomic_store_n(&work->owner, 0, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < sizeof(work->gpus) / (sizeof(uint64_t)); i++)
        __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&work->owner, owner, __ATOMIC_SEQ_CST);
}

int plimsoll_ledger_claim(struct plimsoll_counts *counts, uint64_t owner) {
    int slot = slot_of(counts, owner);
    if (slot < 0)
        slot = take_free_slot(counts, owner);
    if (slot < 0)
        return -1;
    stamp(&counts->slots[slot]); /* a measurement under way may still show the old image's memory */
    for (unsigned gpu = 0; gpu < PLIMSOLL_MAX_GPUS; gpu++)
        __atomic_store_n(&counts->slots[slot].used_bytes[gpu], 0, __ATOMIC_SEQ_CST);
    for (unsigned gpu = 0; gpu < PLIMSOLL_PEAK_GPUS; gpu++)
        __atomic_store_n(&counts->slots[slot].peak_bytes[gpu], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&counts->slots[slot].denied_count, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&counts->slots[slot].contexts, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&counts->slots[slot].awaiting, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&counts->slots[slot].in_vain, 0, __ATOMIC_SEQ_CST);
    clear_work(&counts->works[slot], owner);
    __atomic_store_n(&counts->slots[slot].is_vacating, 0, __ATOMIC_SEQ_CST);
    /* clears the attempts of an owner that died; the number of all attempts goes on from there, so that a
     * process that is just comparing meets no number twice */
    __atomic_fetch_and(&counts->slots[slot].attempts, ~(uint64_t)UINT32_MAX, __ATOMIC_SEQ_CST);
    raise_touched(counts, (uint32_t)slot + 1);
    return slot;
}

static void note_bit(uint32_t *word, unsigned gpu, bool is_set) {
    if (is_set)
        __atomic_fetch_or(word, 1u << gpu, __ATOMIC_SEQ_CST);
    else
        __atomic_fetch_and(word, ~(1u << gpu), __ATOMIC_SEQ_CST);
}

void plimsoll_ledger_await(struct plimsoll_counts *counts, unsigned slot, unsigned gpu,
                           enum plimsoll_awaiting awaiting) {
    if (awaiting == AWAITS_MEASUREMENT)
        stamp(&counts->slots[slot]);
    note_bit(&counts->slots[slot].awaiting, gpu, awaiting == AWAITS_MEASUREMENT);
    note_bit(&counts->slots[slot].in_vain, gpu, awaiting == AWAITED_IN_VAIN);
}

void plimsoll_ledger_note_context(struct plimsoll_counts *counts, unsigned slot, unsigned gpu,
                                  bool is_there) {
    uint64_t bit = 1ull << gpu;
    if (is_there)
        __atomic_fetch_or(&counts->slots[slot].contexts, bit, __ATOMIC_SEQ_CST);
    else
        __atomic_fetch_and(&counts->slots[slot].contexts, ~bit, __ATOMIC_SEQ_CST);
}

/* The orphaned bytes that a slot imports, and none of the slots before it. */
static uint64_t inherited(const struct plimsoll_exports *exports, const struct plimsoll_counts *counts,
                          unsigned gpu, const struct plimsoll_dead *dead, uint32_t slot) {
    uint32_t touched = exports_touched(exports);
    uint64_t sum = 0;
    for (uint32_t word = 0; word * WORD_BITS < touched; word++) {
        uint64_t imported = load(&exports->imports[slot].words[word]);
        for (uint32_t before = 0; before < slot; before++)
            if (!is_dead(counts, before, dead))
                imported &= ~load(&exports->imports[before].words[word]);
        sum = plimsoll_plus(sum, orphaned_in(exports, word, imported, gpu, dead));
    }
    return sum;
}

unsigned plimsoll_ledger_list(const struct plimsoll_counts *counts, const struct plimsoll_exports *exports,
                              unsigned gpu, const struct plimsoll_dead *dead,
                              struct plimsoll_listed listed[PLIMSOLL_MAX_SLOTS]) {
    uint32_t touched = plimsoll_ledger_slots(counts);
    unsigned found = 0;
    for (uint32_t i = 0; i < touched; i++) {
        uint64_t owner = load(&counts->slots[i].owner), used_bytes = load(&counts->slots[i].used_bytes[gpu]);
        bool has_context = load(&counts->slots[i].contexts) >> gpu & 1;
        used_bytes = plimsoll_plus(used_bytes, inherited(exports, counts, gpu, dead, i));
        if (owner && (used_bytes || has_context) && !is_dead(counts, i, dead))
            listed[found++] = (struct plimsoll_listed){(uint32_t)owner, used_bytes, has_context};
    }
    return found;
}
