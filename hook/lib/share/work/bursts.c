/* The foremost event of a stream shows the state of its unfinished work. If that event is the beginning of a
 * segment behind something that blocks, the stream executes nothing. Otherwise the stream executes, or waits
 * for the process's slice. */
#include "clock.h"
#include "memory/ledger.h"
#include "share/gate.h"
#include "share/work/meters.h"

#define SHARES (&plimsoll.shares)

/* --- the page --------------------------------------------------------------------------------------------
 */

static struct plimsoll_work *page_of(int gpu) {
    return &plimsoll.counts->works[plimsoll.slot].gpus[gpu];
}

static void store(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Writes in the order that plimsoll/broker/pages.py promises to readers. */
static void publish(int gpu) {
    const struct plimsoll_burst *burst = &SHARES->bursts[gpu];
    struct plimsoll_work *page = page_of(gpu);
    uint64_t number = page->settled + 1;
    __atomic_store_n(&page->begun, number, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    store(&page->looked_ns, plimsoll_now_ns());
    store(&page->launched_ns, burst->launched_ns);
    store(&page->executed_ns, burst->executed_ns);
    store(&page->unfinished_ns, burst->unfinished_ns);
    store(&page->sure_ns, burst->sure_ns);
    store(&page->sliced_ns, burst->sliced_ns);
    __atomic_store_n(&page->settled, number, __ATOMIC_RELEASE);
}

void plimsoll_burst_tell_queue(int gpu) {
    store(&page_of(gpu)->queued_ns, plimsoll_queued_ns(gpu));
}

void plimsoll_bursts_tell_poll(uint64_t now_ns) {
    for (int gpu = 0; gpu < (int)plimsoll.gpu_count; gpu++)
        store(&page_of(gpu)->looked_ns, now_ns);
}

void plimsoll_show_waiting(int gpu, int change) {
    store(&page_of(gpu)->looked_ns, plimsoll_now_ns());
    __atomic_fetch_add(&page_of(gpu)->standing, (uint64_t)(int64_t)change, __ATOMIC_RELAXED);
}

/* --- whether anything is unfinished ----------------------------------------------------------------------
 */

bool plimsoll_executes(const struct plimsoll_meter *meter) {
    if (meter->launching > 0)
        return true;
    for (unsigned i = 0; i < meter->events.count; i++) {
        const struct plimsoll_event *event = &meter->events.at[i];
        if (!(event->is_begin && event->is_blocked) && plimsoll_is_foremost(meter, i))
            return true;
    }
    for (unsigned i = 0; i < meter->streams.count; i++)
        if (meter->streams.at[i].tail > 0 && !plimsoll_has_event(meter, meter->streams.at[i].key))
            return true;
    return false;
}

static bool executes_on(int gpu) {
    if (SHARES->bursts[gpu].ending > 0)
        return true;
    for (const struct plimsoll_meter *meter = SHARES->meters; meter; meter = meter->next)
        if (meter->context && meter->gpu == gpu && !meter->is_broken && plimsoll_executes(meter))
            return true;
    return false;
}

/* --- bursts ----------------------------------------------------------------------------------------------
 */

static void begin(int gpu, uint64_t launched_ns, uint64_t executed_ns) {
    struct plimsoll_burst *burst = &SHARES->bursts[gpu];
    burst->launched_ns = burst->ended_ns = launched_ns;
    burst->executed_ns = executed_ns;
    burst->is_presumed = false;
    publish(gpu);
}

static void end(int gpu) {
    struct plimsoll_burst *burst = &SHARES->bursts[gpu];
    uint64_t ended_ns = plimsoll_later(burst->ended_ns, burst->executed_ns);
    uint64_t ran_ns = burst->executed_ns ? ended_ns - burst->executed_ns : 0;
    uint64_t sure_ns = plimsoll_sooner(ran_ns, plimsoll_gate_slice_ns());
    burst->unfinished_ns += ended_ns - burst->launched_ns;
    burst->sure_ns += sure_ns;
    burst->sliced_ns += ran_ns - sure_ns;
    burst->launched_ns = burst->executed_ns = 0;
    publish(gpu);
}

void plimsoll_burst_launched(int gpu, uint64_t now_ns) {
    if (SHARES->is_metering && !SHARES->bursts[gpu].launched_ns)
        begin(gpu, now_ns, 0);
}

void plimsoll_burst_executed(int gpu, uint64_t at_ns) {
    struct plimsoll_burst *burst = &SHARES->bursts[gpu];
    if (!SHARES->is_metering || (burst->executed_ns && !burst->is_presumed))
        return;
    burst->is_presumed = false;
    if (!burst->launched_ns) {
        begin(gpu, at_ns, at_ns);
        return;
    }
    burst->executed_ns = plimsoll_later(at_ns, burst->launched_ns);
    publish(gpu);
}

/* A process that ran alone so far gives way at once. Where several processes take turns, half of them come
 * first on average. */
uint64_t plimsoll_first_wait_ns(void) {
    uint64_t sharers = plimsoll_gate_sharers();
    return sharers > 2 ? (sharers - 2) * plimsoll_gate_slice_ns() / 2 : 0;
}

void plimsoll_burst_presume(int gpu, uint64_t now_ns) {
    struct plimsoll_burst *burst = &SHARES->bursts[gpu];
    uint64_t sharers = plimsoll_gate_sharers(), slice_ns = plimsoll_gate_slice_ns();
    if (!burst->launched_ns || burst->executed_ns || now_ns < burst->launched_ns + sharers * slice_ns)
        return;
    burst->executed_ns = burst->launched_ns + plimsoll_first_wait_ns();
    burst->is_presumed = true;
    publish(gpu);
}

void plimsoll_burst_ended(int gpu, uint64_t at_ns) {
    struct plimsoll_burst *burst = &SHARES->bursts[gpu];
    burst->ended_ns = plimsoll_later(burst->ended_ns, at_ns);
    if (burst->launched_ns &&
        !burst->executed_ns) { /* the beginning has no event, or another event came first */
        burst->executed_ns = burst->launched_ns;
        publish(gpu);
    }
}

void plimsoll_burst_settle(int gpu, uint64_t otherwise_ns) {
    struct plimsoll_burst *burst = &SHARES->bursts[gpu];
    if (!burst->launched_ns || executes_on(gpu))
        return;
    if (burst->ended_ns == burst->launched_ns)
        burst->ended_ns = plimsoll_later(otherwise_ns, burst->launched_ns);
    end(gpu);
}

void plimsoll_bursts_meter(bool is_metering, uint64_t now_ns) {
    if (SHARES->is_metering == is_metering)
        return;
    for (int gpu = 0; gpu < (int)plimsoll.gpu_count; gpu++) {
        if (is_metering && executes_on(gpu)) {
            begin(gpu, now_ns, now_ns);
        } else if (!is_metering && SHARES->bursts[gpu].launched_ns) {
            plimsoll_burst_ended(gpu, now_ns);
            end(gpu);
        }
    }
    __atomic_store_n(&SHARES->is_metering, is_metering, __ATOMIC_RELAXED);
}

/* --- the container ---------------------------------------------------------------------------------------
 */

static uint64_t word_of(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* The other process must have polled its work lately. The page of a stopped process is ignored here, and the
 * broker charges nothing for it. */
static bool executes_in(uint32_t slot, uint64_t now_ns) {
    for (unsigned gpu = 0; gpu < plimsoll.gpu_count; gpu++) {
        const struct plimsoll_work *work = &plimsoll.counts->works[slot].gpus[gpu];
        bool is_recent = slot == plimsoll.slot || now_ns < word_of(&work->looked_ns) + PLIMSOLL_SILENT_NS;
        if (is_recent && word_of(&work->launched_ns))
            return true;
    }
    return false;
}

static bool waits_in(uint32_t slot) {
    for (unsigned gpu = 0; gpu < plimsoll.gpu_count; gpu++)
        if (word_of(&plimsoll.counts->works[slot].gpus[gpu].standing))
            return true;
    return false;
}

bool plimsoll_process_executes(uint64_t now_ns) {
    return executes_in(plimsoll.slot, now_ns);
}

bool plimsoll_container_executes(uint64_t now_ns) {
    uint32_t touched = plimsoll_ledger_slots(plimsoll.counts);
    for (uint32_t slot = 0; slot < touched; slot++)
        if (executes_in(slot, now_ns))
            return true;
    return false;
}

bool plimsoll_others_wait_idle(uint64_t now_ns) {
    uint32_t touched = plimsoll_ledger_slots(plimsoll.counts);
    for (uint32_t slot = 0; slot < touched; slot++)
        if (slot != plimsoll.slot && waits_in(slot) && !executes_in(slot, now_ns))
            return true;
    return false;
}

uint64_t plimsoll_container_queued_ns(void) {
    uint32_t touched = plimsoll_ledger_slots(plimsoll.counts);
    uint64_t most_ns = 0;
    for (unsigned gpu = 0; gpu < plimsoll.gpu_count; gpu++) {
        uint64_t sum_ns = 0;
        for (uint32_t slot = 0; slot < touched; slot++)
            sum_ns += __atomic_load_n(&plimsoll.counts->works[slot].gpus[gpu].queued_ns, __ATOMIC_RELAXED);
        most_ns = plimsoll_later(most_ns, sum_ns);
    }
    return most_ns;
}
