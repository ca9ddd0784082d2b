/* Device time: what has run by when. Pure bookkeeping on the shared book; see book.h for the idea.
 * A process hands work over as a length in nanoseconds and gets a mark; the work is done once the process's
 * busy_ns has reached the mark. Work of one process runs in the order in which it was handed over. */
#ifndef PLIMSOLL_EMULATOR_TIMELINE_H
#define PLIMSOLL_EMULATOR_TIMELINE_H

#include "book.h"

/* Works out a GPU's timeline up to `now_ns`. The caller holds its clock_lock. */
void timeline_advance(struct book *book, int gpu, uint64_t now_ns);
/* Takes and leaves a GPU's clock_lock; a timeline whose last holder died is mended on the way. */
void timeline_lock(struct book *book, int gpu);
void timeline_unlock(struct book *book, int gpu);

/* Hands over work of this process; returns its mark. *spans is how many stretches this process has run so
 * far: the book remembers the latest BOOK_MAX_SPANS, by which marks are dated. */
uint64_t timeline_issue(struct book *book, int gpu, uint64_t length_ns, unsigned launches, uint64_t *spans);
/* Has this process's work up to the mark been done? If not, *due_ns is when to look again. */
bool timeline_reached(struct book *book, int gpu, uint64_t mark, uint64_t *due_ns);
/* Sleeps until this process's work up to the mark has been done. */
void timeline_wait(struct book *book, int gpu, uint64_t mark);
/* When (CLOCK_MONOTONIC) the mark was reached; it must have been. */
uint64_t timeline_reached_at(struct book *book, int gpu, uint64_t mark);
/* Sleeps until `due_ns`, with an accuracy of some 10 µs at the cost of at most 50 µs of CPU time. */
void timeline_sleep_until(uint64_t due_ns);
/* Drops what a process has not yet run, when it dies or leaves. The caller holds no clock_lock. */
void timeline_drop(struct book *book, int gpu, int slot);
/* Is the owner of a slot alive? Implemented by the book. */
bool book_slot_alive(const struct book *book, int slot);

#endif
