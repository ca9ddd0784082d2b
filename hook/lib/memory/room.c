/* A reservation is allowed when all words and the measured excess together stay within line and grant. */
#include "memory/ledger.h"

#include <errno.h>
#include <time.h>

#include "broker/broker.h"
#include "memory/bytes.h"
#include "state.h"

/* The number of times that limits which change under a reservation are read again, the later half after a
 * pause. A broker that takes longer was killed while writing, and the next broker finishes the write. Until
 * then the last limits hold, because a program must not hang on a broker's trouble. */
#define CHANGES 64
#define PAUSE_NS 1000000

static uint64_t number(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static uint64_t used_but(unsigned gpu, const struct plimsoll_dead *dead) {
    uint64_t words_bytes = plimsoll_ledger_used_but(plimsoll.counts, gpu, dead);
    return plimsoll_plus(words_bytes, plimsoll_ledger_orphaned(plimsoll.exports, plimsoll.counts, gpu, dead));
}

/* A parent that reads its memory right after a child's end must not see the child's, which the broker clears
 * a moment later. */
static void find_all_dead(unsigned gpu, struct plimsoll_dead *dead) {
    unsigned self = plimsoll_is_attached() ? plimsoll.slot : PLIMSOLL_MAX_SLOTS;
    plimsoll_find_dead(plimsoll.counts, self, gpu, UINT64_MAX, dead);
}

uint64_t plimsoll_used(unsigned gpu) {
    struct plimsoll_dead dead;
    find_all_dead(gpu, &dead);
    return plimsoll_plus(used_but(gpu, &dead), plimsoll_excess(gpu, &dead));
}

static void share_out(uint64_t bytes, struct plimsoll_listed *listed, unsigned count) {
    unsigned left = 0;
    for (unsigned i = 0; i < count; i++)
        left += listed[i].has_context;
    for (unsigned i = 0; i < count; i++) {
        uint64_t part = listed[i].has_context ? bytes / left-- : 0;
        listed[i].used_bytes = plimsoll_plus(listed[i].used_bytes, part);
        bytes -= part;
    }
}

unsigned plimsoll_list(unsigned gpu, struct plimsoll_listed listed[PLIMSOLL_MAX_SLOTS]) {
    struct plimsoll_dead dead;
    find_all_dead(gpu, &dead);
    unsigned count = plimsoll_ledger_list(plimsoll.counts, plimsoll.exports, gpu, &dead, listed);
    share_out(plimsoll_excess(gpu, &dead), listed, count);
    return count;
}

/* The most that all words may come to, if the GPU may be used up to `most_bytes`. The excess that NVML shows
 * is used as well. */
static uint64_t for_words(unsigned gpu, uint64_t most_bytes, uint64_t extra_bytes,
                          const struct plimsoll_dead *dead) {
    return plimsoll_minus(plimsoll_plus(most_bytes, extra_bytes), plimsoll_excess(gpu, dead));
}

/* The generation is read before its numbers. The numbers may be newer than the generation, never older. */
static struct plimsoll_ceiling ceiling_of(unsigned gpu, uint64_t extra_bytes,
                                          const struct plimsoll_dead *dead) {
    const struct plimsoll_gpu *on = &plimsoll.gpus[gpu];
    struct plimsoll_ceiling ceiling = {.most_bytes = PLIMSOLL_NO_LINE,
                                       .dead = dead,
                                       .exports = plimsoll.exports,
                                       .generation = &plimsoll.limits->generation,
                                       .seen = __atomic_load_n(&plimsoll.generation, __ATOMIC_ACQUIRE)};
    uint64_t line_bytes = number(&on->line_bytes), granted_bytes = number(&on->granted_bytes);
    if (!plimsoll_is_whole())
        ceiling.most_bytes =
            for_words(gpu, line_bytes < granted_bytes ? line_bytes : granted_bytes, extra_bytes, dead);
    return ceiling;
}

static void pause_for_the_writer(void) {
    int saved = errno;
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    errno = saved;
}

static enum plimsoll_verdict attempt(unsigned gpu, uint64_t bytes, uint64_t extra_bytes,
                                     const struct plimsoll_dead *dead) {
    for (int change = 0;; change++) {
        struct plimsoll_ceiling ceiling = ceiling_of(gpu, extra_bytes, dead);
        if (change >= CHANGES)
            ceiling.generation = &ceiling.seen;
        enum plimsoll_verdict verdict =
            plimsoll_ledger_reserve(plimsoll.counts, plimsoll.slot, gpu, bytes, &ceiling);
        if (verdict != VERDICT_CHANGED)
            return verdict;
        if (change >= CHANGES / 2)
            pause_for_the_writer();
        plimsoll_refresh();
    }
}

/* Lets in one thread at a time: the threads of a process share a slot, and so would have the same turn. */
static enum plimsoll_verdict attempt_in_turn(unsigned gpu, uint64_t bytes, uint64_t extra_bytes,
                                             const struct plimsoll_dead *dead) {
    enum plimsoll_verdict verdict = VERDICT_COLLIDED;
    pthread_mutex_lock(&plimsoll.retry_lock);
    for (unsigned round = 0;
         verdict == VERDICT_COLLIDED && plimsoll_ledger_pause(plimsoll.counts, plimsoll.slot, round); round++)
        verdict = attempt(gpu, bytes, extra_bytes, dead);
    pthread_mutex_unlock(&plimsoll.retry_lock);
    return verdict;
}

static bool is_reserved(unsigned gpu, uint64_t bytes, uint64_t extra_bytes,
                        const struct plimsoll_dead *dead) {
    enum plimsoll_verdict verdict = attempt(gpu, bytes, extra_bytes, dead);
    if (verdict == VERDICT_COLLIDED)
        verdict = attempt_in_turn(gpu, bytes, extra_bytes, dead);
    return verdict == VERDICT_FITS;
}

/* Whether the living owners may leave room: if what this process holds and requests passes the line by
 * itself, no death makes room. The excess is not counted yet, because a part of it may end with the dead. */
static bool find_dead(unsigned gpu, uint64_t bytes, uint64_t extra_bytes, struct plimsoll_dead *dead) {
    uint64_t own_bytes = number(&plimsoll.counts->slots[plimsoll.slot].used_bytes[gpu]);
    uint64_t orphaned_bytes = plimsoll_ledger_orphaned(plimsoll.exports, plimsoll.counts, gpu, NULL);
    uint64_t line_bytes = number(&plimsoll.gpus[gpu].line_bytes);
    uint64_t most_bytes = plimsoll_minus(plimsoll_plus(line_bytes, extra_bytes), orphaned_bytes);
    uint64_t needed_bytes = plimsoll_plus(own_bytes, bytes);
    return needed_bytes <= most_bytes &&
           plimsoll_find_dead(plimsoll.counts, plimsoll.slot, gpu, most_bytes - needed_bytes, dead);
}

static bool is_within_line(unsigned gpu, uint64_t bytes, uint64_t extra_bytes,
                           const struct plimsoll_dead *dead) {
    uint64_t most_bytes = for_words(gpu, number(&plimsoll.gpus[gpu].line_bytes), extra_bytes, dead);
    return plimsoll_plus(used_but(gpu, dead), bytes) <= most_bytes;
}

/* The words of the dead stand until the broker has cleared their slots. A program that starts when another
 * one has just ended must not be refused for that. So before a refusal only the words of living owners
 * count. */
static enum plimsoll_fit fit_beside_the_living(unsigned gpu, uint64_t bytes, uint64_t extra_bytes) {
    struct plimsoll_dead found;
    const struct plimsoll_dead *dead = find_dead(gpu, bytes, extra_bytes, &found) ? &found : NULL;
    const struct plimsoll_gpu *on = &plimsoll.gpus[gpu];
    if (dead && is_reserved(gpu, bytes, extra_bytes, dead))
        return FIT_RESERVED;
    bool is_overcommitted = number(&on->granted_bytes) < number(&on->line_bytes);
    return is_overcommitted && is_within_line(gpu, bytes, extra_bytes, dead) ? FIT_PAST_GRANT : FIT_PAST_LINE;
}

enum plimsoll_fit plimsoll_fit(unsigned gpu, uint64_t bytes, uint64_t extra_bytes) {
    if (bytes == 0 || is_reserved(gpu, bytes, extra_bytes, NULL))
        return FIT_RESERVED;
    return fit_beside_the_living(gpu, bytes, extra_bytes);
}
