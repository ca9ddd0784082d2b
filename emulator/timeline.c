/* Works out what has run on each GPU by now. Processes with unfinished work take turns, round robin; a
 * process that is alone keeps its turn. Since the result depends only on what stands in the book, it does not
 * matter who works it out, nor how late: back-to-back kernels lose nothing to the granularity of sleeps. */
#include "timeline.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    ALIVE_CHECK_NS = 10000000, /* how often a process that takes turns is checked for life: one fcntl each */
    LOOK_AGAIN_NS = 50000000,  /* a neighbour's death may let us finish earlier than foreseen */
    FORESEEN_TURNS = 64,       /* how far ahead one look goes; later is foreseen by the next look */
    SPIN_NS = 30000,           /* sleeps end this late on an idle machine; the rest is spun away */
    LONGEST_SLEEP_NS = 1000000000,
};

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static struct book_share *share_of(struct book *book, int gpu, int slot) {
    return &book->state->slots[slot].gpus[gpu];
}

static uint64_t backlog_ns(const struct book_share *share) {
    return share->issued_ns - share->busy_ns;
}

static void stop_working(struct book_gpu *card, struct book_share *share) {
    share->unfinished_ns += card->clock_ns - share->working_since_ns;
    share->working = 0;
    card->working--;
}

static void mend(struct book *book, int gpu) {
    struct book_gpu *card = &book->state->gpus[gpu];
    card->working = 0;
    for (int slot = 0; slot < (int)book->state->slots_touched; slot++)
        card->working += share_of(book, gpu, slot)->working;
}

void timeline_lock(struct book *book, int gpu) {
    pthread_mutex_t *lock = &book->state->gpus[gpu].clock_lock;
    if (pthread_mutex_lock(lock) == EOWNERDEAD) {
        mend(book, gpu);
        pthread_mutex_consistent(lock);
    }
}

void timeline_unlock(struct book *book, int gpu) {
    pthread_mutex_unlock(&book->state->gpus[gpu].clock_lock);
}

static void close_sample(struct book *book, int gpu) {
    struct book_gpu *card = &book->state->gpus[gpu];
    struct book_sample *sample = &card->samples[card->sample_count % BOOK_MAX_SAMPLES];
    card->sample_start_ns += book->node.sample_ns;
    sample->time_ns = card->sample_start_ns;
    sample->busy_ns = card->sample_busy_ns;
    memset(sample->process_pct, 0, sizeof sample->process_pct);
    for (int slot = 0; card->sample_busy_ns && slot < (int)book->state->slots_touched; slot++) {
        struct book_share *share = share_of(book, gpu, slot);
        sample->process_pct[slot] = (uint8_t)(share->sample_busy_ns * 100 / book->node.sample_ns);
        share->sample_busy_ns = 0;
    }
    card->sample_busy_ns = 0;
    card->sample_count++;
}

/* An idle GPU that nobody looked at for an hour needs only as many samples as the ring holds. */
static void skip_idle(struct book *book, struct book_gpu *card, uint64_t now_ns) {
    uint64_t windows = (now_ns - card->sample_start_ns) / book->node.sample_ns;
    if (windows > BOOK_MAX_SAMPLES + 1) {
        card->sample_start_ns += (windows - BOOK_MAX_SAMPLES - 1) * book->node.sample_ns;
        card->clock_ns = card->sample_start_ns;
    }
}

static bool died(struct book *book, int gpu, int slot) {
    struct book_share *share = share_of(book, gpu, slot);
    uint64_t clock_ns = book->state->gpus[gpu].clock_ns;
    if (slot == book->slot || clock_ns - share->checked_ns < ALIVE_CHECK_NS)
        return false;
    share->checked_ns = clock_ns;
    return !book_slot_alive(book, slot);
}

static void drop(struct book_gpu *card, struct book_share *share) {
    share->issued_ns = share->busy_ns;
    if (share->working)
        stop_working(card, share);
}

static void pass_turn(struct book *book, int gpu) {
    struct book_gpu *card = &book->state->gpus[gpu];
    int count = (int)book->state->slots_touched, first = card->turn + 1;
    card->turn = -1;
    for (int i = 0; i < count && card->turn < 0; i++) {
        int slot = (first + i) % count;
        struct book_share *share = share_of(book, gpu, slot);
        if (!share->working)
            continue;
        if (died(book, gpu, slot))
            drop(card, share);
        else
            card->turn = slot;
    }
    card->turn_end_ns = card->clock_ns + book->node.slice_ns;
}

static bool turn_stands(struct book *book, int gpu) {
    const struct book_gpu *card = &book->state->gpus[gpu];
    return card->turn >= 0 && share_of(book, gpu, card->turn)->working &&
           (card->working == 1 || card->clock_ns < card->turn_end_ns);
}

static void note_span(struct book_share *share, uint64_t start_ns, uint64_t length_ns) {
    struct book_span *last = &share->spans[(share->span_count - 1) % BOOK_MAX_SPANS];
    if (share->span_count && last->start_ns + last->length_ns == start_ns) {
        last->length_ns += length_ns;
        return;
    }
    share->spans[share->span_count++ % BOOK_MAX_SPANS] =
        (struct book_span){.start_ns = start_ns, .service_ns = share->busy_ns, .length_ns = length_ns};
}

static void run_holder(struct book *book, int gpu, uint64_t end_ns) {
    struct book_gpu *card = &book->state->gpus[gpu];
    struct book_share *share = share_of(book, gpu, card->turn);
    end_ns = least(end_ns, card->clock_ns + backlog_ns(share));
    if (card->working > 1)
        end_ns = least(end_ns, card->turn_end_ns);
    uint64_t length_ns = end_ns - card->clock_ns;
    note_span(share, card->clock_ns, length_ns);
    card->clock_ns = end_ns;
    card->busy_ns += length_ns;
    card->sample_busy_ns += length_ns;
    share->sample_busy_ns += length_ns;
    share->busy_ns += length_ns;
    if (backlog_ns(share) == 0)
        stop_working(card, share);
}

void timeline_advance(struct book *book, int gpu, uint64_t now_ns) {
    struct book_gpu *card = &book->state->gpus[gpu];
    while (card->clock_ns < now_ns) {
        if (!card->working)
            skip_idle(book, card, now_ns);
        if (card->clock_ns >= card->sample_start_ns + book->node.sample_ns)
            close_sample(book, gpu);
        uint64_t end_ns = least(now_ns, card->sample_start_ns + book->node.sample_ns);
        if (card->working && !turn_stands(book, gpu))
            pass_turn(book, gpu);
        if (!card->working)
            card->clock_ns = end_ns;
        else
            run_holder(book, gpu, end_ns);
    }
}

uint64_t timeline_issue(struct book *book, int gpu, uint64_t length_ns, unsigned launches, uint64_t *spans) {
    struct book_gpu *card = &book->state->gpus[gpu];
    struct book_share *share = share_of(book, gpu, book->slot);
    timeline_lock(book, gpu);
    timeline_advance(book, gpu, book_now_ns());
    share->issued_ns += length_ns;
    share->launches += launches;
    if (!share->working && length_ns) {
        share->working_since_ns = card->clock_ns;
        share->working = 1;
        card->working++;
    }
    uint64_t mark = share->issued_ns;
    *spans = share->span_count;
    timeline_unlock(book, gpu);
    return mark;
}

/* Plays the coming turns on a copy: when would this process have run `need_ns` more, if nothing changed? */
static uint64_t foresee(struct book *book, int gpu, uint64_t need_ns) {
    const struct book_gpu *card = &book->state->gpus[gpu];
    int count = (int)book->state->slots_touched, slot = card->turn < 0 ? 0 : card->turn;
    uint64_t left_ns[BOOK_MAX_SLOTS], time_ns = card->clock_ns;
    uint64_t turn_ns = card->turn_end_ns > time_ns ? card->turn_end_ns - time_ns : 0;
    for (int i = 0; i < count; i++)
        left_ns[i] = backlog_ns(share_of(book, gpu, i));
    for (int turns = 0; turns < FORESEEN_TURNS; slot = (slot + 1) % count) {
        uint64_t run_ns = least(left_ns[slot], turn_ns);
        turn_ns = book->node.slice_ns;
        if (slot == book->slot && run_ns >= need_ns)
            return time_ns + need_ns;
        if (slot == book->slot)
            need_ns -= run_ns;
        left_ns[slot] -= run_ns;
        time_ns += run_ns;
        turns += run_ns > 0;
    }
    return time_ns;
}

bool timeline_reached(struct book *book, int gpu, uint64_t mark, uint64_t *due_ns) {
    const struct book_share *share = share_of(book, gpu, book->slot);
    timeline_lock(book, gpu);
    uint64_t now_ns = book_now_ns();
    timeline_advance(book, gpu, now_ns);
    bool reached = share->busy_ns >= mark;
    if (!reached && book->state->gpus[gpu].working == 1)
        *due_ns = now_ns + (mark - share->busy_ns);
    else if (!reached)
        *due_ns = least(foresee(book, gpu, mark - share->busy_ns), now_ns + LOOK_AGAIN_NS);
    timeline_unlock(book, gpu);
    return reached;
}

static void nap_until(uint64_t due_ns) {
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
    const struct book_share *share = share_of(book, gpu, book->slot);
    timeline_lock(book, gpu);
    uint64_t at_ns = book->state->slots[book->slot].claimed_ns;
    uint64_t oldest = share->span_count > BOOK_MAX_SPANS ? share->span_count - BOOK_MAX_SPANS : 0;
    for (uint64_t i = share->span_count; i > oldest; i--) {
        const struct book_span *span = &share->spans[(i - 1) % BOOK_MAX_SPANS];
        at_ns = span->start_ns;
        if (span->service_ns < mark) {
            at_ns += least(mark - span->service_ns, span->length_ns);
            break;
        }
    }
    timeline_unlock(book, gpu);
    return at_ns;
}

void timeline_drop(struct book *book, int gpu, int slot) {
    timeline_lock(book, gpu);
    timeline_advance(book, gpu, book_now_ns());
    drop(&book->state->gpus[gpu], share_of(book, gpu, slot));
    timeline_unlock(book, gpu);
}
