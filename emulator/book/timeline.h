/* Device time: the work that each process has run by a given time. This is pure bookkeeping on the shared
 * book; state.h describes the idea. A process submits work as a length in nanoseconds and gets a mark,
 * which is reached once that work is done. Queued work of one process runs in order of submission. Kernels
 * that spin occupy the process's turns without doing work. Once they stop spinning, their remaining run
 * time goes before the queue. */
#ifndef PLIMSOLL_EMULATOR_TIMELINE_H
#define PLIMSOLL_EMULATOR_TIMELINE_H

#include "book/state.h"

/* A mark counts run time of the process's queue, unless one of these bits is set. */
#define MARK_ENDING (1ull << 62) /* counts the remaining run time of kernels that have stopped spinning */
#define MARK_SLICE (1ull << 63)  /* counts all run time, spinning included */

/* Computes a GPU's timeline up to `now_ns`. The caller holds the GPU's clock_lock. */
void timeline_advance(struct book *book, int gpu, uint64_t now_ns);
/* Take and leave a GPU's clock_lock. If the last holder died, the timeline is repaired first. */
void timeline_lock(struct book *book, int gpu);
void timeline_unlock(struct book *book, int gpu);

/* Submits work of this process; returns its mark. *spans is the number of stretches that this process has
 * run so far. The book dates marks by the latest BOOK_MAX_SPANS of them. */
uint64_t timeline_issue(struct book *book, int gpu, uint64_t length_ns, unsigned launches, uint64_t *spans);
uint64_t timeline_span_count(struct book *book, int gpu);
/* Returns a mark for the beginning of this process's next slice and asks for that slice: a command that
 * takes no time still needs its process's turn. Returns 0 if the process has the GPU or the GPU is idle. */
uint64_t timeline_next_slice(struct book *book, int gpu);
/* Changes the number of this process's kernels that spin, or will spin as soon as the work before them is
 * done. */
void timeline_spin(struct book *book, int gpu, int change, unsigned launches);
/* Ends a kernel's spinning; the kernel then runs for `length_ns`. Returns the mark of its end. */
uint64_t timeline_end_spin(struct book *book, int gpu, uint64_t length_ns);

/* True if this process's work up to the mark is done. If not, *due_ns is the time for the next check. A
 * process that is cut off from the book submits nothing any more and finds everything done. */
bool timeline_reached(struct book *book, int gpu, uint64_t mark, uint64_t *due_ns);
/* Returns the later of two marks of this process. */
uint64_t timeline_later(struct book *book, int gpu, uint64_t one, uint64_t other);
/* Sleeps until this process's work up to the mark has been done. */
void timeline_wait(struct book *book, int gpu, uint64_t mark);
/* Time (CLOCK_MONOTONIC) at which the mark was reached. The caller knows that it was. */
uint64_t timeline_reached_at(struct book *book, int gpu, uint64_t mark);
/* Sleeps until `due_ns`, with an accuracy of some 10 µs at the cost of at most 50 µs of CPU time. */
void timeline_sleep_until(uint64_t due_ns);
/* Drops the unfinished work of a process that dies or leaves. The caller holds no clock_lock. */
void timeline_drop(struct book *book, int gpu, int slot);

/* Memory and work of a process on a GPU, for the files that make up the timeline. */
struct book_share *timeline_share(struct book *book, int gpu, int slot);
/* Device time of the work that the process has not run yet. */
uint64_t timeline_backlog_ns(const struct book_share *share);
/* Time for which a process has had the GPU. */
static inline uint64_t timeline_occupied_ns(const uint64_t ran_ns[BOOK_LANES]) {
    return ran_ns[BOOK_ENDING] + ran_ns[BOOK_QUEUE] + ran_ns[BOOK_SPINNING];
}

#endif
