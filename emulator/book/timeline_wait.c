/* The time at which a process's work is done: predicted, waited for, and dated afterwards. */
#include <sys/prctl.h>
#include <time.h>

#include "book/state_file.h"
#include "book/timeline.h"

enum {
    LOOK_AGAIN_NS = 50000000, /* another process's death may end this process's work earlier than predicted */
    FORESEEN_TURNS = 64,      /* turns that one prediction covers; the next prediction covers later ones */
    SPIN_NS = 30000, /* sleeps end this late on an idle machine; the thread spins for this time instead */
    LONGEST_SLEEP_NS = 100000000, /* a process that is cut off from the book notices it within this time */
};

static const uint64_t FOR_EVER = UINT64_MAX / 2; /* the unknown remaining time of a kernel that spins */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t kind_of(uint64_t mark) {
    return mark & (MARK_SLICE | MARK_ENDING);
}

/* The part of a process's run time that a mark of this kind counts. */
static uint64_t counted_ns(const uint64_t ran_ns[BOOK_LANES], uint64_t mark) {
    if (mark & MARK_SLICE)
        return timeline_occupied_ns(ran_ns);
    return ran_ns[mark & MARK_ENDING ? BOOK_ENDING : BOOK_QUEUE];
}

/* Time for which this process must still run until the mark is reached; 0 = the mark is reached. */
static uint64_t need_ns(const struct book_share *share, uint64_t mark) {
    uint64_t done_ns = counted_ns(share->ran_ns, mark), length_ns = mark & ~kind_of(mark);
    if (done_ns >= length_ns)
        return 0;
    uint64_t before_ns = kind_of(mark) ? 0 : share->issued_ns[BOOK_ENDING] - share->ran_ns[BOOK_ENDING];
    return before_ns + (length_ns - done_ns);
}

/* Predicts when this process will have run `length_ns` more, by playing the coming turns on a copy. The
 * prediction holds if no process submits or drops work. */
static uint64_t foresee(struct book *book, int gpu, uint64_t length_ns) {
    const struct book_gpu *card = &book->state->gpus[gpu];
    int count = (int)book->state->slots_touched, slot = card->turn < 0 ? 0 : card->turn;
    uint64_t left_ns[BOOK_MAX_SLOTS], time_ns = card->clock_ns;
    uint64_t turn_ns = card->turn_end_ns > time_ns ? card->turn_end_ns - time_ns : 0;
    for (int i = 0; i < count; i++) {
        const struct book_share *share = timeline_share(book, gpu, i);
        left_ns[i] = share->spinning ? FOR_EVER : timeline_backlog_ns(share);
    }
    if (left_ns[book->slot] < length_ns)
        return time_ns;
    for (int turns = 0; turns < FORESEEN_TURNS; slot = (slot + 1) % count) {
        uint64_t run_ns = least(left_ns[slot], turn_ns);
        turn_ns = book->node.slice_ns;
        if (slot == book->slot && run_ns >= length_ns)
            return time_ns + length_ns;
        if (slot == book->slot)
            length_ns -= run_ns;
        left_ns[slot] -= run_ns;
        time_ns += run_ns;
        turns += run_ns > 0;
    }
    return time_ns;
}

bool timeline_reached(struct book *book, int gpu, uint64_t mark, uint64_t *due_ns) {
    const struct book_share *share = timeline_share(book, gpu, book->slot);
    timeline_lock(book, gpu);
    uint64_t now_ns = book_now_ns();
    timeline_advance(book, gpu, now_ns);
    uint64_t length_ns = book_is_cut_off(book) ? 0 : need_ns(share, mark);
    if (length_ns && book->state->gpus[gpu].working == 1)
        *due_ns = now_ns + length_ns;
    else if (length_ns)
        *due_ns = least(foresee(book, gpu, length_ns), now_ns + LOOK_AGAIN_NS);
    timeline_unlock(book, gpu);
    return !length_ns;
}

/* Marks of different kinds compare by what has run. If the smaller one is reached, the larger one is
 * later; otherwise the smaller one is: queued work runs after ending kernels, and both run within slices. */
uint64_t timeline_later(struct book *book, int gpu, uint64_t one, uint64_t other) {
    uint64_t first = one < other ? one : other, last = one < other ? other : one;
    if (kind_of(first) == kind_of(last))
        return last;
    timeline_lock(book, gpu);
    bool is_reached = !need_ns(timeline_share(book, gpu, book->slot), first);
    timeline_unlock(book, gpu);
    return is_reached ? last : first;
}

static void nap_until(uint64_t due_ns) {
    due_ns += (uint64_t)book_clock_shift_ns;
    struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000), .tv_nsec = (long)(due_ns % 1000000000)};
    int slack_ns = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
    if (slack_ns > 0)
        prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns);
}

void timeline_sleep_until(uint64_t due_ns) {
    uint64_t now_ns = book_now_ns();
    due_ns = least(due_ns, now_ns + LONGEST_SLEEP_NS);
    if (due_ns > now_ns + SPIN_NS)
        nap_until(due_ns - SPIN_NS);
    while (book_now_ns() < due_ns)
        ;
}

void timeline_wait(struct book *book, int gpu, uint64_t mark) {
    uint64_t due_ns = 0;
    while (!timeline_reached(book, gpu, mark, &due_ns))
        timeline_sleep_until(due_ns);
}

uint64_t timeline_reached_at(struct book *book, int gpu, uint64_t mark) {
    const struct book_share *share = timeline_share(book, gpu, book->slot);
    uint64_t length_ns = mark & ~kind_of(mark);
    timeline_lock(book, gpu);
    uint64_t at_ns = book->state->slots[book->slot].claimed_ns;
    uint64_t oldest = share->span_count > BOOK_MAX_SPANS ? share->span_count - BOOK_MAX_SPANS : 0;
    for (uint64_t i = share->span_count; i > oldest; i--) {
        const struct book_span *span = &share->spans[(i - 1) % BOOK_MAX_SPANS];
        at_ns = span->start_ns;
        if (counted_ns(span->before_ns, mark) < length_ns) {
            at_ns += least(length_ns - counted_ns(span->before_ns, mark), span->length_ns);
            break;
        }
    }
    timeline_unlock(book, gpu);
    return at_ns;
}

uint64_t timeline_span_count(struct book *book, int gpu) {
    timeline_lock(book, gpu);
    uint64_t count = timeline_share(book, gpu, book->slot)->span_count;
    timeline_unlock(book, gpu);
    return count;
}
