/* The ledger: reservations in `counts`, without a lock and without a stored total. */
#ifndef PLIMSOLL_LEDGER_H
#define PLIMSOLL_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "pages.h"

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

#endif
