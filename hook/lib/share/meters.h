/* Meters: what is known of the work in each context, by events of ours between and behind its launches
 * ("marks").
 *
 * The work of a stream falls into segments. Within a segment each launch is ready when the launch before it
 * has ended, so the stream executes from the segment's beginning to its end. A segment begins with the first
 * launch into a stream that has nothing unfinished. It also begins behind a host function, a callback or a
 * wait, during which a stream executes nothing.
 *
 * Marks follow the first launch of a segment and every few launches after it. A mark stands at the beginning
 * of a segment only behind something that blocks the stream. In an idle stream such a mark would get the
 * process's slice, and would give the slice away before the launch comes.
 */
#ifndef PLIMSOLL_METERS_H
#define PLIMSOLL_METERS_H

#include "state.h"

/* Makes this thread uncancellable. Call this before every section that takes a lock here or makes the thread
 * a user of a meter: a thread that is cancelled inside, during a call of the kernel or the driver, would keep
 * the lock for ever. Returns the argument for plimsoll_release_thread. */
int plimsoll_hold_thread(void);
void plimsoll_release_thread(int before);

void plimsoll_shares_in_child(void);

/* --- under plimsoll.shares.lock ------------------------------------------------------------------------ */

/* The meter of a context on a GPU of `limits`; NULL where there is no memory for one. */
struct plimsoll_meter *plimsoll_meter_of(uint64_t context, int gpu);

/* The same, but NULL also for a context in which the driver refuses events, for no context, and for a GPU
 * that is not in `limits`. */
struct plimsoll_meter *plimsoll_sound_meter_of(uint64_t context, int gpu);

/* A number that tells streams apart. Each thread has its own default stream, under one handle that all
 * threads share. */
uint64_t plimsoll_stream_key(CUstream stream);

/* The stream with this key; NULL where it is not known. */
struct plimsoll_stream *plimsoll_stream_in(struct plimsoll_meter *meter, uint64_t key);
/* The stream with this key, added where there is room; else NULL. */
struct plimsoll_stream *plimsoll_stream_for(struct plimsoll_meter *meter, uint64_t key);
/* Whether any mark stands in the stream with this key. */
bool plimsoll_has_mark(const struct plimsoll_meter *meter, uint64_t key);
/* Forgets a stream that has nothing unfinished and is not blocked. */
void plimsoll_stream_drop(struct plimsoll_meter *meter, struct plimsoll_stream *stream);

void plimsoll_spare(struct plimsoll_meter *meter, CUevent event);

/* --- with the lock released; the caller is one of the meter's users ------------------------------------- */

/* An event of the context, from its spare ones or new; NULL where the driver gives none. */
CUevent plimsoll_event_take(struct plimsoll_meter *meter);

#endif
