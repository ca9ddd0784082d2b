/* The words in `counts`: what the container holds on each GPU, and what it may. */
#ifndef PLIMSOLL_LEDGER_H
#define PLIMSOLL_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "pages.h"

/* --- ledger.c: reservations, without a lock and without a stored total ----------------------------------
 */

#define PLIMSOLL_NO_LINE UINT64_MAX

/* For each slot: the owner that was found dead in it, or 0. If the slot was claimed again since, its owner is
 * another one, and its words count. */
struct plimsoll_dead {
    uint64_t owners[PLIMSOLL_MAX_SLOTS];
};

/* The limit of a reservation. All words together may come to `most_bytes` (PLIMSOLL_NO_LINE: to any sum), as
 * long as `*generation` is still `seen`, the even number under which `most_bytes` was read. */
struct plimsoll_ceiling {
    uint64_t most_bytes;
    const uint64_t *generation;
    uint64_t seen;
    const struct plimsoll_dead *dead;       /* owners whose words do not count; NULL: every word counts */
    const struct plimsoll_exports *exports; /* NULL: there are none */
};

enum plimsoll_verdict {
    VERDICT_FITS, /* reserved */
    VERDICT_PAST, /* the sum would pass the ceiling, even without reservations that others are only trying */
    VERDICT_COLLIDED, /* other threads were trying at the same moment: the request may fit soon */
    VERDICT_CHANGED   /* the limits changed meanwhile: read them and try again */
};

/* Claims a slot for `owner`: the owner's slot from before an exec, else a free one. Returns its index, with
 * all its words 0 and `slots_touched` past it; -1 when all slots are taken. */
int plimsoll_ledger_claim(struct plimsoll_counts *counts, uint64_t owner);

/* The number of slots that may ever have been claimed: no slot from this one on was. */
uint32_t plimsoll_ledger_slots(const struct plimsoll_counts *counts);

/* The bytes that all processes together have reserved or hold on GPU `gpu`, saturating, without the words of
 * dead owners. `dead` NULL: every word counts. */
uint64_t plimsoll_ledger_used_but(const struct plimsoll_counts *counts, unsigned gpu,
                                  const struct plimsoll_dead *dead);

/* The bytes that processes import on GPU `gpu` although the exporter, which had them in its word, has let go
 * of them or is dead. Read it after the words, because an exporter's word sinks last. */
uint64_t plimsoll_ledger_orphaned(const struct plimsoll_exports *exports,
                                  const struct plimsoll_counts *counts, unsigned gpu,
                                  const struct plimsoll_dead *dead);

/* Adds `bytes` to the slot's word for `gpu` if the ceiling allows. Unless the result is VERDICT_FITS, nothing
 * was added. */
enum plimsoll_verdict plimsoll_ledger_reserve(struct plimsoll_counts *counts, unsigned slot, unsigned gpu,
                                              uint64_t bytes, const struct plimsoll_ceiling *ceiling);

/* Adds `bytes` without a check, for memory that exists already. */
void plimsoll_ledger_add(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes);

/* Records the slot's word for `gpu` as its largest, if it is: an allocation has succeeded. */
void plimsoll_ledger_note_peak(struct plimsoll_counts *counts, unsigned slot, unsigned gpu);

enum plimsoll_awaiting {
    AWAITS_NOTHING,
    AWAITS_MEASUREMENT, /* the process holds still until the broker has measured it */
    AWAITED_IN_VAIN     /* it has gone on without */
};

/* Records whether the slot's process awaits its measurement on GPU `gpu`. A measurement that began before it
 * did does not count. */
void plimsoll_ledger_await(struct plimsoll_counts *counts, unsigned slot, unsigned gpu,
                           enum plimsoll_awaiting awaiting);

/* Records whether the slot's process has a context on GPU `gpu`. */
void plimsoll_ledger_note_context(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, bool is_there);

/* A process on a GPU. */
struct plimsoll_listed {
    uint32_t pid; /* in the process's own PID namespace */
    uint64_t used_bytes;
    bool has_context;
};

/* Lists every process that holds or reserves memory or has a context on GPU `gpu`, except the dead. Memory
 * whose exporter is gone counts for the first that imports it. Returns their number. */
unsigned plimsoll_ledger_list(const struct plimsoll_counts *counts, const struct plimsoll_exports *exports,
                              unsigned gpu, const struct plimsoll_dead *dead,
                              struct plimsoll_listed listed[PLIMSOLL_MAX_SLOTS]);

/* Waits for the slot's turn after collision number `round`, counted from 0. Returns false at once when there
 * were enough rounds. Threads of one process must call this one at a time. */
bool plimsoll_ledger_pause(const struct plimsoll_counts *counts, unsigned slot, unsigned round);

/* Takes `bytes` off the slot's own word. */
void plimsoll_ledger_give_back(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes);

/* --- owners.c: the process that owns a slot, and whether that process is dead ---------------------------
 */

/* The owner word of this process: its pid in its own namespace, and above that the low half of its start
 * time. */
uint64_t plimsoll_own_owner(void);

/* The value of a slot's `namespaces` for an owner in the namespaces of this process. */
uint64_t plimsoll_namespaces_for(uint64_t owner);

/* Finds the slots, except slot `self`, whose words for GPU `gpu` count although their owners are dead. True
 * if the words of all other owners come to `spare_bytes` at most. Then there is room without the words of the
 * dead, also where no dead owner is found because the broker has just cleared their slots. Keeps errno. */
bool plimsoll_find_dead(const struct plimsoll_counts *counts, unsigned self, unsigned gpu,
                        uint64_t spare_bytes, struct plimsoll_dead *dead);

/* --- measured.c: NVML's figures for each process, as the broker writes them into the file `measured` ----
 */

/* The bytes that NVML shows of the container on a GPU past its words: the excess of `limits`, less the part
 * of the processes in `dead`, because the excess of a process ends with its death. `dead` NULL: of all. */
uint64_t plimsoll_excess(unsigned gpu, const struct plimsoll_dead *dead);

/* After the driver made a context that nothing was charged for, and before the broker hears of it; and after
 * the import of memory of unknown size. */
void plimsoll_measurement_due(unsigned gpu);

/* Waits until NVML's figure for this process, with all memory that nothing was charged for, counts against
 * the line. Gives up after 10 s, once and with a line on standard error. Costs one load otherwise. */
void plimsoll_await_measurement(unsigned gpu);

/* --- room.c: whether a request fits, by the present limits ----------------------------------------------
 */

enum plimsoll_fit {
    FIT_RESERVED,
    FIT_PAST_LINE,  /* fits only once memory is given back or the line rises */
    FIT_PAST_GRANT, /* within the line, but past what the broker granted so far: the caller may wait */
};

/* Adds `bytes` to this process's word for a GPU of `limits`, if all words and the excess together then stay
 * within line and grant. `extra_bytes` of them may stand past both. Never waits. Unless the result is
 * FIT_RESERVED, nothing was added. Reads changed limits on the way. */
enum plimsoll_fit plimsoll_fit(unsigned gpu, uint64_t bytes, uint64_t extra_bytes);

/* The bytes that the container uses of a GPU: the words of all living processes, the memory of exporters that
 * are gone, and the excess that NVML shows past them. Saturates. Reads /proc if another process has a word.
 */
uint64_t plimsoll_used(unsigned gpu);

/* Lists the container's living processes on a GPU, with bytes that sum up to plimsoll_used. Only the broker
 * knows whose the excess is, and `limits` has its sum. So the processes with a context, which is most of the
 * excess, get equal parts of it. */
unsigned plimsoll_list(unsigned gpu, struct plimsoll_listed listed[PLIMSOLL_MAX_SLOTS]);

/* --- words.c: this process's own words ------------------------------------------------------------------
 */

/* Takes `bytes` off this process's word for a GPU. Does nothing if `gpu` is negative. */
void plimsoll_uncharge(int gpu, uint64_t bytes);

/* The same, and reports the bytes to the broker if another process waits for memory there. Call this without
 * any lock but context_lock. */
void plimsoll_uncharge_and_tell(int gpu, uint64_t bytes);

/* Counts and reports a refusal. */
void plimsoll_count_denial(int gpu, uint64_t bytes, const char *function);

/* Decides on a request for a GPU that is not in `limits`: true if the container owns its GPUs alone.
 * Otherwise counts the refusal. */
bool plimsoll_admit_unlisted(uint64_t bytes, const char *function);

#endif
