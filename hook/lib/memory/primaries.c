#include "memory/primaries.h"

#include "broker/broker.h"
#include "driver/gpus.h"
#include "memory/ledger.h"
#include "memory/pools/pools.h"
#include "memory/release.h"
#include "share/work.h"

uint64_t plimsoll_context_bytes(int gpu) {
    plimsoll_refresh();
    return gpu < 0 ? 0 : __atomic_load_n(&plimsoll.gpus[gpu].context_bytes, __ATOMIC_RELAXED);
}

/* The mark in `counts` is how the container's processes see each other through NVML. */
void plimsoll_context_made(int gpu, uint64_t charged_bytes) {
    if (gpu < 0)
        return;
    bool is_due = charged_bytes == 0 && !plimsoll_is_whole();
    if (is_due)
        plimsoll_measurement_due((unsigned)gpu);
    pthread_mutex_lock(&plimsoll.context_lock);
    bool is_first = !plimsoll.contexts[gpu].is_announced;
    plimsoll.contexts[gpu].is_announced = true;
    if (plimsoll.contexts[gpu].present++ == 0)
        plimsoll_ledger_note_context(plimsoll.counts, plimsoll.slot, (unsigned)gpu, true);
    pthread_mutex_unlock(&plimsoll.context_lock);
    if (is_first)
        plimsoll_tell_context((unsigned)gpu);
    if (is_due)
        plimsoll_await_measurement((unsigned)gpu);
}

void plimsoll_context_ended(int gpu) {
    if (gpu < 0)
        return;
    pthread_mutex_lock(&plimsoll.context_lock);
    if (plimsoll.contexts[gpu].present > 0 && --plimsoll.contexts[gpu].present == 0)
        plimsoll_ledger_note_context(plimsoll.counts, plimsoll.slot, (unsigned)gpu, false);
    pthread_mutex_unlock(&plimsoll.context_lock);
}

/* The reservation is made under the lock, so that two threads never reserve for one context twice. The wait
 * is outside the lock. */
static enum plimsoll_fit try_to_enter(unsigned gpu, uint64_t bytes) {
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    enum plimsoll_fit fit = here->alive > 0 ? FIT_RESERVED : plimsoll_fit(gpu, bytes, 0);
    if (fit == FIT_RESERVED && here->alive++ == 0)
        here->charged_bytes = bytes;
    pthread_mutex_unlock(&plimsoll.context_lock);
    return fit;
}

bool plimsoll_primary_enter(int gpu, const char *function) {
    if (gpu < 0)
        return gpu == GPU_NONE || plimsoll_admit_unlisted(0, function);
    uint64_t bytes = plimsoll_context_bytes(gpu);
    enum plimsoll_fit fit;
    unsigned turn = 0;
    do
        fit = try_to_enter((unsigned)gpu, bytes);
    while (fit == FIT_PAST_GRANT && plimsoll_wait_for_memory((unsigned)gpu, bytes, turn++, function));
    if (fit != FIT_RESERVED)
        plimsoll_count_denial(gpu, bytes, function);
    return fit == FIT_RESERVED;
}

void plimsoll_primary_enter_unjudged(int gpu) {
    uint64_t bytes = plimsoll_context_bytes(gpu);
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    if (here->alive++ == 0) {
        here->charged_bytes = bytes;
        plimsoll_ledger_add(plimsoll.counts, plimsoll.slot, (unsigned)gpu, bytes);
    }
    pthread_mutex_unlock(&plimsoll.context_lock);
}

uint64_t plimsoll_primary_charge(int gpu) {
    if (gpu < 0)
        return 0;
    pthread_mutex_lock(&plimsoll.context_lock);
    uint64_t bytes = plimsoll.contexts[gpu].charged_bytes;
    pthread_mutex_unlock(&plimsoll.context_lock);
    return bytes;
}

void plimsoll_primary_leave(int gpu) {
    if (gpu < 0)
        return;
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    if (here->alive > 0 && --here->alive == 0) {
        struct plimsoll_holding charged = {.gpu = (int16_t)gpu, .bytes = here->charged_bytes};
        plimsoll_give_back(&charged);
    }
    pthread_mutex_unlock(&plimsoll.context_lock);
}

struct plimsoll_primary plimsoll_primary_known(int gpu) {
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_primary known = {plimsoll.contexts[gpu].primary, plimsoll.contexts[gpu].primary_id};
    pthread_mutex_unlock(&plimsoll.context_lock);
    return known;
}

bool plimsoll_is_former_primary(int gpu, uint64_t context) {
    pthread_mutex_lock(&plimsoll.context_lock);
    bool is_former = plimsoll.contexts[gpu].former == context;
    pthread_mutex_unlock(&plimsoll.context_lock);
    return is_former;
}

bool plimsoll_primary_change(int gpu, struct plimsoll_primary from, struct plimsoll_primary to) {
    pthread_mutex_lock(&plimsoll.context_lock);
    struct plimsoll_contexts *here = &plimsoll.contexts[gpu];
    bool is_changed = plimsoll_is_same(from, (struct plimsoll_primary){here->primary, here->primary_id});
    if (is_changed) {
        here->former = from.context ? from.context : here->former;
        here->primary_id = to.id;
        here->retained = 0;
        __atomic_store_n(&here->primary, to.context, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&plimsoll.context_lock);
    return is_changed;
}

void plimsoll_primary_retained(int gpu) {
    if (gpu < 0)
        return;
    pthread_mutex_lock(&plimsoll.context_lock);
    plimsoll.contexts[gpu].retained++;
    pthread_mutex_unlock(&plimsoll.context_lock);
}

bool plimsoll_primary_outlives_release(int gpu) {
    if (gpu < 0)
        return false;
    pthread_mutex_lock(&plimsoll.context_lock);
    unsigned before = plimsoll.contexts[gpu].retained;
    plimsoll.contexts[gpu].retained -= before > 0;
    pthread_mutex_unlock(&plimsoll.context_lock);
    return before > 1;
}

bool plimsoll_primary_drop(int gpu, struct plimsoll_primary known,
                           void (*gone)(const struct plimsoll_holding *)) {
    if (!known.context || !plimsoll_primary_change(gpu, known, PLIMSOLL_NO_PRIMARY))
        return false;
    plimsoll_work_context_lost(known.context);
    plimsoll_holdings_sweep(&plimsoll.holdings, known.context, gone);
    plimsoll_pools_update();
    plimsoll_graph_pool_update(gpu);
    plimsoll_primary_leave(gpu);
    plimsoll_context_ended(gpu);
    return true;
}

void plimsoll_primary_end(int gpu) {
    if (gpu >= 0)
        plimsoll_primary_drop(gpu, plimsoll_primary_known(gpu), plimsoll_give_back);
}
