/* What is known of the work in each context: events of ours between and behind its launches ("marks").
 *
 * A stream's work falls into segments. Within one, each piece is ready when the piece before it has ended, so
 * the stream executes from the segment's beginning to its end. A segment begins with the first launch into a
 * stream of which nothing is unfinished, or behind a host function, a callback or a wait, during which a
 * stream executes nothing. Marks stand behind the first launch and behind every few more. A beginning has a
 * mark only behind something that blocks: into an idle stream a mark would be given the process's slice, and
 * would give it away again before the launch comes.
 */
#ifndef PLIMSOLL_METERS_H
#define PLIMSOLL_METERS_H

#include "state.h"

/* Around whatever takes a lock here or counts this thread in: a thread that is cancelled in between, in a
 * call of the kernel or of the driver, would take it along. Returns what plimsoll_release_thread gives back.
 */
int plimsoll_hold_thread(void);
void plimsoll_release_thread(int before);

void plimsoll_shares_in_child(void);

/* --- under plimsoll.shares.lock ------------------------------------------------------------------------ */

/* The meter of a context on a GPU of `limits`; NULL where there is no memory for one. */
struct plimsoll_meter *plimsoll_meter_of(uint64_t context, int gpu);

/* The same; NULL too where the driver refuses events in it, and for no context or an unlisted GPU. */
struct plimsoll_meter *plimsoll_sound_meter_of(uint64_t context, int gpu);

/* Tells streams apart: each thread's own default one has the same handle in all. */
uint64_t plimsoll_stream_key(CUstream stream);

/* NULL: not known. */
struct plimsoll_stream *plimsoll_stream_in(struct plimsoll_meter *meter, uint64_t key);
/* The same, made known where there is room. */
struct plimsoll_stream *plimsoll_stream_for(struct plimsoll_meter *meter, uint64_t key);
/* Forgets a stream of which nothing is unfinished and which nothing blocks. */
void plimsoll_stream_drop(struct plimsoll_meter *meter, struct plimsoll_stream *stream);

void plimsoll_spare(struct plimsoll_meter *meter, CUevent event);

/* --- with the lock released; the caller is one of the meter's users ------------------------------------- */

/* An event of the context, from its spares or new; NULL where the driver gives none. */
CUevent plimsoll_event_take(struct plimsoll_meter *meter);

#endif
