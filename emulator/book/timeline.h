/* Device time: what has run by when. Pure bookkeeping on the shared book; see state.h for the idea.
 * A process hands work over as a length in nanoseconds and gets a mark, which is reached once that work is
 * done. Queued work of one process runs in the order in which it was handed over. Kernels that spin occupy
 * the process's turns without doing any; once they have spun enough, their rest goes before the queue. */
#ifndef PLIMSOLL_EMULATOR_TIMELINE_H
#define PLIMSOLL_EMULATOR_TIMELINE_H

#include "book/state.h"

/* Marks count what the process has run of its queue, unless one of these bits says otherwise. */
#define MARK_ENDING (1ull << 62) /* of the rest of kernels that have spun enough */
#define MARK_SLICE (1ull << 63)  /* at all, spinning included */

/* Works out a GPU's timeline up to `now_ns`. The caller holds its clock_lock. */
void timeline_advance(struct book *book, int gpu, uint64_t now_ns);
/* Takes and leaves a GPU's clock_lock; a timeline whose last holder died is mended on the way. */
void timeline_lock(struct book *book, int gpu);
void timeline_unlock(struct book *book, int gpu);

/* Hands over work of this process; returns its mark. *spans is how many stretches this process has run so
 * far: the book remembers the latest BOOK_MAX_SPANS, by which marks are dated. */
uint64_t timeline_issue(struct book *book, int gpu, uint64_t length_ns, unsigned launches, uint64_t *spans);
uint64_t timeline_span_count(struct book *book, int gpu);
/* A mark for the beginning of this process's next slice, of which it has need from now on: a command that
 * takes no time still needs its process's turn. 0 where the process has the GPU, or nobody does. */
uint64_t timeline_next_slice(struct book *book, int gpu);
/* Changes how many kernels of this process spin, or will as soon as the work before them is done. */
void timeline_spin(struct book *book, int gpu, int change, unsigned launches);
/* A kernel spins no more, and runs for `length_ns`; returns the mark of its end. */
uint64_t timeline_end_spin(struct book *book, int gpu, uint64_t length_ns);

/* Has this process's work up to the mark been done? If not, *due_ns is when to look again. A process that is
 * cut off from the book hands nothing over any more, and finds everything done. */
bool timeline_reached(struct book *book, int gpu, uint64_t mark, uint64_t *due_ns);
/* Of two marks of this process, the one that is reached later. */
uint64_t timeline_later(struct book *book, int gpu, uint64_t one, uint64_t other);
/* Sleeps until this process's work up to the mark has been done. */
void timeline_wait(struct book *book, int gpu, uint64_t mark);
/* When (CLOCK_MONOTONIC) the mark was reached; it must have been. */
uint64_t timeline_reached_at(struct book *book, int gpu, uint64_t mark);
/* Sleeps until `due_ns`, with an accuracy of some 10 µs at the cost of at most 50 µs of CPU time. */
void timeline_sleep_until(uint64_t due_ns);
/* Drops what a process has not yet run, when it dies or leaves. The caller holds no clock_lock. */
void timeline_drop(struct book *book, int gpu, int slot);

/* What a process has and does on a GPU, for the files that make up the timeline. */
struct book_share *timeline_share(struct book *book, int gpu, int slot);
/* Device time of the work that it has not run. */
uint64_t timeline_backlog_ns(const struct book_share *share);
/* For how long a process has had the GPU. */
static inline uint64_t timeline_occupied_ns(const uint64_t ran_ns[BOOK_LANES]) {
    return ran_ns[BOOK_ENDING] + ran_ns[BOOK_QUEUE] + ran_ns[BOOK_SPINNING];
}

#endif
