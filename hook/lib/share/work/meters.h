/* Declarations that the files of this folder share. Every function needs plimsoll.shares.lock unless its
 * comment says otherwise.
 *
 * The work of a stream falls into segments. Within a segment each launch is ready when the launch before it
 * has ended, so the stream executes from the segment's beginning to its end. A segment begins with the first
 * launch into a stream that has nothing unfinished. It also begins behind a host function, a callback or a
 * wait, during which a stream executes nothing. The launches of a stream that no event follows yet are its
 * tail.
 *
 * A burst lasts while this process has work on a GPU.
 */
#ifndef PLIMSOLL_METERS_H
#define PLIMSOLL_METERS_H

#include "share/work.h"

/* --- meters.c: contexts and their streams ---------------------------------------------------------------
 */

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
/* Whether any event stands in the stream with this key. */
bool plimsoll_has_event(const struct plimsoll_meter *meter, uint64_t key);

/* Whether no event of the same stream is before this one. */
bool plimsoll_is_foremost(const struct plimsoll_meter *meter, unsigned index);

/* Ends every segment whose last event was reached and that nothing follows. */
void plimsoll_close_segments(struct plimsoll_meter *meter);

/* --- events.c: our events in the streams ----------------------------------------------------------------
 *
 * To record releases the lock during the driver's call. The context may end in that time.
 */

/* An event at the beginning of a segment in this stream. Returns its serial, 0 for none. Only for a thread
 * that is about to use the stream anyway. */
uint64_t plimsoll_record_begin(struct plimsoll_meter *meter, CUstream stream, bool is_blocked);

/* An event at the end of everything that the stream was given. It covers the stream's tail. */
void plimsoll_record_behind(struct plimsoll_meter *meter, CUstream stream);

/* An event at the end of one launch into a stream without a segment. It stands for `stands_for` launches. */
void plimsoll_record_sample(struct plimsoll_meter *meter, CUstream stream, unsigned stands_for);

/* An event at the end of everything that the context was given, in all streams. It covers all tails. Does
 * nothing in three cases: the driver cannot record such an event (before 12.5); a capture is under way, which
 * the event would break; or a stream's work is blocked, because the event would be reached only when that
 * work goes on, however long nothing executes. */
void plimsoll_record_context(struct plimsoll_meter *meter);

/* Whether there is room for another pair of events. */
bool plimsoll_events_have_room(const struct plimsoll_meter *meter);

/* Puts by an event that is under way no longer, for its next use. */
void plimsoll_event_spare(struct plimsoll_meter *meter, CUevent event);

/* --- dating.c -------------------------------------------------------------------------------------------
 */

/* Takes in the results of a meter's poll: dates the reached events, removes them, learns from them, and
 * updates the bursts. */
void plimsoll_take_in(struct plimsoll_meter *meter);

/* --- estimates.c: how much work is queued, and how long it will take ------------------------------------
 */

/* The launches that are not known to be done. */
unsigned plimsoll_outstanding(const struct plimsoll_meter *meter);

/* Whether any work is not known to be done, whether it executes or not. */
bool plimsoll_has_work(void);

/* The time that the outstanding launches of all meters on one GPU should take together, by their averages. */
uint64_t plimsoll_queued_ns(int gpu);

/* --- bursts.c: what the page reports; nothing while the gate is open ------------------------------------
 */

/* A launch began. If nothing was unfinished on the GPU, the burst begins at `now_ns`. */
void plimsoll_burst_launched(int gpu, uint64_t now_ns);

/* Work of this process began to execute. If no launch is known for the work, it was blocked until `at_ns`,
 * and the burst begins there. */
void plimsoll_burst_executed(int gpu, uint64_t at_ns);

/* The time for which the first launch of a burst usually waits for a slice of its process. */
uint64_t plimsoll_first_wait_ns(void);

/* No event shows yet when the burst began to execute. Assume that execution has begun if the process must
 * have had a slice by now. */
void plimsoll_burst_presume(int gpu, uint64_t now_ns);

/* Some work ended at `at_ns`. Other work of the burst may continue. */
void plimsoll_burst_ended(int gpu, uint64_t at_ns);

/* Whether any stream of a meter executes. */
bool plimsoll_executes(const struct plimsoll_meter *meter);

/* Ends the burst if nothing on the GPU executes or waits for its slice. If no end is known, the burst ended
 * at `otherwise_ns`. */
void plimsoll_burst_settle(int gpu, uint64_t otherwise_ns);

/* Reports that this process polls its work. Readers take a process without such reports for stopped, and
 * ignore its page. */
void plimsoll_bursts_tell_poll(uint64_t now_ns);

/* Reports how much work is queued on the GPU. */
void plimsoll_burst_tell_queue(int gpu);

#endif
