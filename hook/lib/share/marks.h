/* Marks: our events in the program's streams. Every function needs plimsoll.shares.lock, which it releases
 * during the driver's call. The context may end in that time. */
#ifndef PLIMSOLL_MARKS_H
#define PLIMSOLL_MARKS_H

#include "state.h"

/* Marks the beginning of a segment in this stream. Returns the mark's serial, 0 for none. Only for a thread
 * that is about to use the stream anyway. */
uint64_t plimsoll_mark_begin(struct plimsoll_meter *meter, CUstream stream, bool is_blocked);

/* Marks the end of everything that the stream was given. The mark covers the stream's tail. */
void plimsoll_mark_behind(struct plimsoll_meter *meter, CUstream stream);

/* Marks the end of one launch into a stream without a segment. The mark stands for `stands_for` launches. */
void plimsoll_mark_sample(struct plimsoll_meter *meter, CUstream stream, unsigned stands_for);

/* Marks the end of everything that the context was given, in all streams. The mark covers all tails. Does
 * nothing in three cases: the driver cannot record such a mark (before 12.5); a capture is under way, which
 * the mark would break; or a stream's work is blocked, because the mark would be reached only when that work
 * goes on, however long nothing executes. */
void plimsoll_mark_context(struct plimsoll_meter *meter);

/* Whether there is room for another pair of marks. */
bool plimsoll_marks_have_room(const struct plimsoll_meter *meter);

#endif
