/* The readers' view of the book: snapshots, utilisation samples, and the ring of injected events. */
#include "book/view.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "book/book.h"
#include "book/holders.h"
#include "book/lock.h"
#include "book/state_file.h"
#include "book/timeline.h"

/* False for a process that died since the sweep: another process may have its pid by now. */
static bool copy_process(const struct book *book, int slot, int gpu, struct book_process *process) {
    const struct book_slot *from = &book->state->slots[slot];
    const struct book_share *share = &from->gpus[gpu];
    if (!book_file_slot_held(book->fd, slot, &process->pid))
        return false;
    process->slot = (uint32_t)slot;
    process->contexts = share->contexts;
    process->gpu = (uint32_t)gpu;
    process->is_mps_client = from->mps.server != 0;
    process->used_bytes = share->used_bytes + book_inherited_locked(book, gpu, slot);
    process->peak_bytes = share->peak_bytes;
    if (process->peak_bytes <
        process->used_bytes) /* the process inherited shared memory, which no charge counted */
        process->peak_bytes = process->used_bytes;
    for (int purpose = 0; purpose < BOOK_PURPOSES; purpose++)
        process->purpose_bytes[purpose] = __atomic_load_n(&share->purpose_bytes[purpose], __ATOMIC_RELAXED);
    process->busy_ns = share->ran_ns[BOOK_ENDING] + share->ran_ns[BOOK_QUEUE];
    process->spun_ns = share->ran_ns[BOOK_SPINNING];
    process->unfinished_ns = share->unfinished_ns;
    if (share->working)
        process->unfinished_ns += book->state->gpus[gpu].clock_ns - share->working_since_ns;
    process->launches = share->launches;
    process->claimed_ns = from->claimed_ns;
    memcpy(process->name, from->name, sizeof process->name);
    return true;
}

/* Adds the work of one place, and the processes on it. */
static void add_place(struct book *book, int gpu, bool adds_idle, struct book_snapshot *snapshot) {
    timeline_lock(book, gpu);
    snapshot->time_ns = book_now_ns();
    timeline_advance(book, gpu, snapshot->time_ns);
    snapshot->busy_ns += book->state->gpus[gpu].busy_ns;
    snapshot->spun_ns += book->state->gpus[gpu].spun_ns;
    for (int slot = 0; slot < (int)book->state->slots_touched; slot++) {
        const struct book_slot *from = &book->state->slots[slot];
        if (from->pid && (adds_idle || from->gpus[gpu].contexts))
            snapshot->process_count +=
                copy_process(book, slot, gpu, &snapshot->processes[snapshot->process_count]);
    }
    timeline_unlock(book, gpu);
}

void book_look(struct book *book, int gpu, struct book_snapshot *snapshot) {
    const struct node_file *node = &book->node;
    book_lock(book);
    book_sweep_locked(book);
    snapshot->used_bytes = book_used_locked(book, gpu);
    snapshot->peak_bytes = book->state->gpus[gpu].peak_bytes;
    snapshot->busy_ns = snapshot->spun_ns = 0;
    snapshot->lost = book_is_lost(book, gpu);
    snapshot->process_count = 0;
    add_place(book, gpu, !node->gpus[gpu].is_mig, snapshot);
    /* A process is on one instance at most, so each slot is listed once. */
    for (int part = node->gpu_count; node->gpus[gpu].is_mig && part < node->place_count; part++)
        if (node->gpus[part].card == gpu)
            add_place(book, part, false, snapshot);
    book_unlock(book);
}

uint32_t book_samples(struct book *book, int gpu, uint64_t since_ns,
                      struct book_sample samples[BOOK_MAX_SAMPLES]) {
    struct book_gpu *card = &book->state->gpus[gpu];
    uint32_t copied = 0;
    timeline_lock(book, gpu);
    timeline_advance(book, gpu, book_now_ns());
    uint64_t oldest = card->sample_count > BOOK_MAX_SAMPLES ? card->sample_count - BOOK_MAX_SAMPLES : 0;
    for (uint64_t i = oldest; i < card->sample_count; i++)
        if (card->samples[i % BOOK_MAX_SAMPLES].time_ns > since_ns)
            samples[copied++] = card->samples[i % BOOK_MAX_SAMPLES];
    timeline_unlock(book, gpu);
    return copied;
}

static uint64_t wall_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void book_post_event(struct book *book, int gpu, uint64_t type, uint64_t data) {
    struct book_state *state = book->state;
    book_lock(book);
    state->events[state->event_count % BOOK_MAX_EVENTS] =
        (struct book_event){.sequence = state->event_count + 1,
                            .time_ns = wall_clock_ns(),
                            .type = type,
                            .data = data,
                            .gpu = (uint32_t)gpu};
    state->event_count++;
    __atomic_add_fetch(&state->event_signal, 1, __ATOMIC_RELEASE);
    book_unlock(book);
    syscall(SYS_futex, &state->event_signal, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

uint64_t book_event_cursor(struct book *book) {
    book_lock(book);
    uint64_t cursor = book->state->event_count;
    book_unlock(book);
    return cursor;
}

static bool take_event(struct book *book, uint64_t *cursor,
                       bool (*wanted)(const struct book_event *event, void *closure), void *closure,
                       struct book_event *event) {
    const struct book_state *state = book->state;
    bool found = false;
    book_lock(book);
    if (state->event_count > BOOK_MAX_EVENTS && *cursor < state->event_count - BOOK_MAX_EVENTS)
        *cursor = state->event_count - BOOK_MAX_EVENTS;
    while (!found && *cursor < state->event_count) {
        *event = state->events[(*cursor)++ % BOOK_MAX_EVENTS];
        found = wanted(event, closure);
    }
    book_unlock(book);
    return found;
}

bool book_next_event(struct book *book, uint64_t *cursor,
                     bool (*wanted)(const struct book_event *event, void *closure), void *closure,
                     unsigned timeout_ms, struct book_event *event) {
    uint64_t deadline_ns = book_now_ns() + timeout_ms * 1000000ull;
    while (true) {
        uint32_t signal = __atomic_load_n(&book->state->event_signal, __ATOMIC_ACQUIRE);
        if (take_event(book, cursor, wanted, closure, event))
            return true;
        uint64_t now_ns = book_now_ns();
        if (now_ns >= deadline_ns)
            return false;
        uint64_t left_ns = deadline_ns - now_ns;
        struct timespec timeout = {.tv_sec = (time_t)(left_ns / 1000000000),
                                   .tv_nsec = (long)(left_ns % 1000000000)};
        syscall(SYS_futex, &book->state->event_signal, FUTEX_WAIT, signal, &timeout, NULL, 0);
    }
}

void book_set_lost(struct book *book, int gpu, bool lost) {
    int card = book->node.gpus[gpu].card;
    __atomic_store_n(&book->state->gpus[card].lost, lost ? 1 : 0, __ATOMIC_RELAXED);
}

bool book_is_lost(const struct book *book, int gpu) {
    int card = book->node.gpus[gpu].card;
    return __atomic_load_n(&book->state->gpus[card].lost, __ATOMIC_RELAXED) != 0;
}

void book_set_ended(struct book *book, int gpu, bool ended) {
    __atomic_store_n(&book->state->gpus[gpu].ended, ended ? 1 : 0, __ATOMIC_RELAXED);
}

bool book_is_ended(const struct book *book, int gpu) {
    return __atomic_load_n(&book->state->gpus[gpu].ended, __ATOMIC_RELAXED) != 0;
}

void book_set_fault(struct book *book, int gpu, enum book_fault fault, uint64_t value) {
    __atomic_store_n(&book->state->gpus[gpu].faults[fault], value, __ATOMIC_RELAXED);
}

uint64_t book_fault(const struct book *book, int gpu, enum book_fault fault) {
    return __atomic_load_n(&book->state->gpus[gpu].faults[fault], __ATOMIC_RELAXED);
}

void book_reset(struct book *book, int gpu) {
    for (int fault = 0; fault < BOOK_FAULTS; fault++)
        book_set_fault(book, gpu, (enum book_fault)fault, 0);
    __atomic_store_n(&book->state->gpus[gpu].reset_ns, book_now_ns(), __ATOMIC_RELAXED);
    book_set_lost(book, gpu, false);
}

uint64_t book_reset_ns(const struct book *book, int gpu) {
    return __atomic_load_n(&book->state->gpus[gpu].reset_ns, __ATOMIC_RELAXED);
}
