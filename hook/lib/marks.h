/* Events of ours behind what was launched. All under plimsoll.shares.lock, which is released while the driver
 * is called; the context may have ended then. */
#ifndef PLIMSOLL_MARKS_H
#define PLIMSOLL_MARKS_H

#include "state.h"

/* Records an event behind what the stream was given, and tells when. NULL where the driver takes none there,
 * or the context ended. Only for a thread that is about to use the stream anyway, or just did. */
CUevent plimsoll_record(struct plimsoll_meter *meter, CUstream stream, uint64_t *at_ns);

/* The same, remembered as what covers the stream's tail, and `launches` more that stand in none. */
void plimsoll_mark(struct plimsoll_meter *meter, CUstream stream, unsigned launches);

/* Behind all that the context was given, in whatever streams. False where the driver cannot (before 12.5), or
 * must not, as a capture is under way that it would break. */
bool plimsoll_mark_context(struct plimsoll_meter *meter);

/* When the GPU was given what a call of the driver gave it. */
uint64_t plimsoll_handed_over_ns(uint64_t entered_ns, uint64_t left_ns);

#endif
