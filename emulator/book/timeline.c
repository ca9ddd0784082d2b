/* Computes the work that each GPU has run by now. Processes with unfinished work take turns, round robin;
 * a process that is alone keeps its turn. The result depends only on the book, so any process may compute
 * it, and at any later time. Back-to-back kernels lose nothing to the granularity of sleeps. */
#include "book/timeline.h"

#include <errno.h>
#include <string.h>

#include "book/state_file.h"
#include "book/traffic.h"

enum {
    ALIVE_CHECK_NS = 10000000
}; /* least time between two checks that a process with a turn lives; each check is one fcntl */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

struct book_share *timeline_share(struct book *book, int gpu, int slot) {
    return &book->state->slots[slot].gpus[gpu];
}

static uint64_t backlog_ns(const struct book_share *share, enum book_lane lane) {
    return share->issued_ns[lane] - share->ran_ns[lane];
}

uint64_t timeline_backlog_ns(const struct book_share *share) {
    return backlog_ns(share, BOOK_ENDING) + backlog_ns(share, BOOK_QUEUE);
}

static void begin_turn(const struct book *book, struct book_gpu *card, int slot) {
    card->turn = slot;
    card->turn_end_ns = card->clock_ns + book->node.slice_ns;
}

/* Work of this process on an idle GPU begins a turn, whichever process had the last turn. */
static void start_working(const struct book *book, struct book_gpu *card, struct book_share *share) {
    if (share->working || !(timeline_backlog_ns(share) || share->spinning))
        return;
    if (!card->working)
        begin_turn(book, card, book->slot);
    share->working_since_ns = card->clock_ns;
    share->working = 1;
    card->working++;
}

static void stop_working(struct book_gpu *card, struct book_share *share) {
    if (!share->working || timeline_backlog_ns(share) || share->spinning)
        return;
    share->unfinished_ns += card->clock_ns - share->working_since_ns;
    share->working = 0;
    card->working--;
}

static void mend(struct book *book, int gpu) {
    struct book_gpu *card = &book->state->gpus[gpu];
    card->working = 0;
    for (int slot = 0; slot < (int)book->state->slots_touched; slot++)
        card->working += timeline_share(book, gpu, slot)->working;
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
    sample->traffic_ns = card->sample_traffic_ns;
    memset(sample->process_pct, 0, sizeof sample->process_pct);
    memset(sample->process_traffic_pct, 0, sizeof sample->process_traffic_pct);
    for (int slot = 0; card->sample_busy_ns && slot < (int)book->state->slots_touched; slot++) {
        struct book_share *share = timeline_share(book, gpu, slot);
        sample->process_pct[slot] = (uint8_t)(share->sample_busy_ns * 100 / book->node.sample_ns);
        sample->process_traffic_pct[slot] = (uint8_t)(share->sample_traffic_ns * 100 / book->node.sample_ns);
        share->sample_busy_ns = share->sample_traffic_ns = 0;
    }
    card->sample_busy_ns = card->sample_traffic_ns = 0;
    card->sample_count++;
}

/* After a long idle time without readers, only as many samples are written as the ring holds. */
static void skip_idle(struct book *book, struct book_gpu *card, uint64_t now_ns) {
    uint64_t windows = (now_ns - card->sample_start_ns) / book->node.sample_ns;
    if (windows > BOOK_MAX_SAMPLES + 1) {
        card->sample_start_ns += (windows - BOOK_MAX_SAMPLES - 1) * book->node.sample_ns;
        card->clock_ns = card->sample_start_ns;
    }
}

static bool died(struct book *book, int gpu, int slot) {
    struct book_share *share = timeline_share(book, gpu, slot);
    uint64_t clock_ns = book->state->gpus[gpu].clock_ns;
    if (slot == book->slot || clock_ns - share->checked_ns < ALIVE_CHECK_NS)
        return false;
    share->checked_ns = clock_ns;
    return !book_slot_alive(book, slot);
}

static void drop(struct book_gpu *card, struct book_share *share) {
    memcpy(share->issued_ns, share->ran_ns, sizeof share->issued_ns);
    traffic_drop(share);
    share->spinning = 0;
    stop_working(card, share);
}

static void pass_turn(struct book *book, int gpu) {
    struct book_gpu *card = &book->state->gpus[gpu];
    int count = (int)book->state->slots_touched, first = card->turn + 1;
    begin_turn(book, card, -1);
    for (int i = 0; i < count && card->turn < 0; i++) {
        int slot = (first + i) % count;
        struct book_share *share = timeline_share(book, gpu, slot);
        if (!share->working)
            continue;
        if (died(book, gpu, slot))
            drop(card, share);
        else
            card->turn = slot;
    }
}

static bool turn_stands(struct book *book, int gpu) {
    const struct book_gpu *card = &book->state->gpus[gpu];
    return card->turn >= 0 && timeline_share(book, gpu, card->turn)->working &&
           (card->working == 1 || card->clock_ns < card->turn_end_ns);
}

static void note_span(struct book_share *share, enum book_lane lane, uint64_t start_ns, uint64_t length_ns) {
    struct book_span *last = &share->spans[(share->span_count - 1) % BOOK_MAX_SPANS];
    if (share->span_count && last->lane == lane && last->start_ns + last->length_ns == start_ns) {
        last->length_ns += length_ns;
        return;
    }
    last = &share->spans[share->span_count++ % BOOK_MAX_SPANS];
    *last = (struct book_span){.start_ns = start_ns, .length_ns = length_ns, .lane = lane};
    memcpy(last->before_ns, share->ran_ns, sizeof last->before_ns);
}

static void count_run(struct book_gpu *card, struct book_share *share, enum book_lane lane,
                      uint64_t length_ns) {
    note_span(share, lane, card->clock_ns, length_ns);
    if (lane == BOOK_QUEUE) {
        uint64_t traffic_ns = traffic_run(share, share->ran_ns[lane], share->ran_ns[lane] + length_ns);
        card->sample_traffic_ns += traffic_ns;
        share->sample_traffic_ns += traffic_ns;
    }
    card->clock_ns += length_ns;
    card->sample_busy_ns += length_ns;
    share->sample_busy_ns += length_ns;
    share->ran_ns[lane] += length_ns;
    if (lane == BOOK_SPINNING)
        card->spun_ns += length_ns;
    else
        card->busy_ns += length_ns;
}

static void run_holder(struct book *book, int gpu, uint64_t end_ns) {
    struct book_gpu *card = &book->state->gpus[gpu];
    struct book_share *share = timeline_share(book, gpu, card->turn);
    enum book_lane lane = backlog_ns(share, BOOK_ENDING)  ? BOOK_ENDING
                          : backlog_ns(share, BOOK_QUEUE) ? BOOK_QUEUE
                                                          : BOOK_SPINNING;
    if (lane != BOOK_SPINNING)
        end_ns = least(end_ns, card->clock_ns + backlog_ns(share, lane));
    if (card->working > 1)
        end_ns = least(end_ns, card->turn_end_ns);
    count_run(card, share, lane, end_ns - card->clock_ns);
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

/* Takes the lock and computes the timeline up to now. Returns false, without the lock, in a process that
 * is cut off from the book: its slot may belong to another process. */
static bool enter(struct book *book, int gpu) {
    timeline_lock(book, gpu);
    timeline_advance(book, gpu, book_now_ns());
    bool is_cut_off = book_is_cut_off(book);
    if (is_cut_off)
        timeline_unlock(book, gpu);
    return !is_cut_off;
}

static uint64_t issue(struct book *book, int gpu, enum book_lane lane, uint64_t length_ns) {
    struct book_share *share = timeline_share(book, gpu, book->slot);
    share->issued_ns[lane] += length_ns;
    start_working(book, &book->state->gpus[gpu], share);
    return share->issued_ns[lane];
}

uint64_t timeline_issue(struct book *book, int gpu, uint64_t length_ns, unsigned launches, uint64_t *spans) {
    struct book_share *share = timeline_share(book, gpu, book->slot);
    *spans = 0;
    if (!enter(book, gpu))
        return 0;
    uint64_t mark = issue(book, gpu, BOOK_QUEUE, length_ns);
    if (!launches && length_ns) /* a copy or a fill */
        traffic_issue(share, mark - length_ns, length_ns);
    share->launches += launches;
    *spans = share->span_count;
    timeline_unlock(book, gpu);
    return mark;
}

uint64_t timeline_next_slice(struct book *book, int gpu) {
    const struct book_gpu *card = &book->state->gpus[gpu];
    const struct book_share *share = timeline_share(book, gpu, book->slot);
    uint64_t mark = 0;
    if (!enter(book, gpu))
        return 0;
    bool has_turn = card->turn == book->slot && turn_stands(book, gpu);
    if (card->working > share->working && !has_turn) {
        if (!share->working)
            issue(book, gpu, BOOK_QUEUE, 1);
        mark = MARK_SLICE | (timeline_occupied_ns(share->ran_ns) + 1);
    }
    timeline_unlock(book, gpu);
    return mark;
}

void timeline_spin(struct book *book, int gpu, int change, unsigned launches) {
    struct book_gpu *card = &book->state->gpus[gpu];
    struct book_share *share = timeline_share(book, gpu, book->slot);
    if (!enter(book, gpu))
        return;
    share->spinning += (uint32_t)change;
    share->launches += launches;
    start_working(book, card, share);
    stop_working(card, share);
    timeline_unlock(book, gpu);
}

uint64_t timeline_end_spin(struct book *book, int gpu, uint64_t length_ns) {
    struct book_share *share = timeline_share(book, gpu, book->slot);
    if (!enter(book, gpu))
        return 0;
    uint64_t mark = MARK_ENDING | issue(book, gpu, BOOK_ENDING, length_ns);
    share->spinning--;
    stop_working(&book->state->gpus[gpu], share);
    timeline_unlock(book, gpu);
    return mark;
}

void timeline_drop(struct book *book, int gpu, int slot) {
    timeline_lock(book, gpu);
    timeline_advance(book, gpu, book_now_ns());
    drop(&book->state->gpus[gpu], timeline_share(book, gpu, slot));
    timeline_unlock(book, gpu);
}
