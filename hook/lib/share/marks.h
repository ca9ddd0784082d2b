/* Marks: our events in the program's streams. All under plimsoll.shares.lock, which is released while the
 * driver is called; the context may have ended then. */
#ifndef PLIMSOLL_MARKS_H
#define PLIMSOLL_MARKS_H

#include "state.h"

/* A segment of this stream begins here; returns the mark's serial, 0 for none. Only for a thread that is
 * about to use the stream anyway. */
uint64_t plimsoll_mark_begin(struct plimsoll_meter *meter, CUstream stream, bool is_blocked);

/* Behind what the stream was given: covers its tail, and `launches` more that stand in none. */
void plimsoll_mark_behind(struct plimsoll_meter *meter, CUstream stream, unsigned launches);

/* Behind one launch into a stream that is not followed up; a sample of so many. */
void plimsoll_mark_sample(struct plimsoll_meter *meter, CUstream stream, unsigned stands_for);

/* Behind all that the context was given, in whatever streams: covers all tails. Nothing where the driver
 * cannot (before 12.5), or must not, as a capture is under way that it would break; nor while a stream's
 * work is blocked, as the mark would be reached when that goes on, however long nothing executes. */
void plimsoll_mark_context(struct plimsoll_meter *meter);

/* Whether there is room for another pair of marks. */
bool plimsoll_marks_have_room(const struct plimsoll_meter *meter);

#endif
