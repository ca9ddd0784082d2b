/* Reservations in `counts`: who may hold how much, without a lock and without a stored total. */
#ifndef PLIMSOLL_LEDGER_H
#define PLIMSOLL_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "pages.h"

#define PLIMSOLL_NO_LINE UINT64_MAX

/* By slot: the owner that was found dead in it, or 0. A slot that was claimed anew since then has another
 * owner, and counts. */
struct plimsoll_dead {
    uint64_t owners[PLIMSOLL_MAX_SLOTS];
};

/* What a reservation is judged by: all words together may come to `most_bytes` (PLIMSOLL_NO_LINE: to
 * anything), as long as `*generation` still is `seen`, the even number under which `most_bytes` was read. */
struct plimsoll_ceiling {
    uint64_t most_bytes;
    const uint64_t *generation;
    uint64_t seen;
    const struct plimsoll_dead *dead; /* whose words do not count; NULL: every word counts */
};

enum plimsoll_verdict {
    VERDICT_FITS,     /* reserved */
    VERDICT_PAST,     /* it would pass the ceiling, also without what others are only trying */
    VERDICT_COLLIDED, /* others were trying at the same moment: it may fit in a moment */
    VERDICT_CHANGED   /* the limits changed meanwhile: read them again, and come again */
};

/* Claims a slot for `owner`: its own from before an exec, else a free one. Returns its index with all its
 * words 0 and `slots_touched` past it, or -1 when all are taken. */
int plimsoll_ledger_claim(struct plimsoll_counts *counts, uint64_t owner);

/* What all processes together have reserved or hold on GPU `gpu`, saturating. */
uint64_t plimsoll_ledger_used(const struct plimsoll_counts *counts, unsigned gpu);

/* The same without the words of the dead; NULL: every word counts. */
uint64_t plimsoll_ledger_used_but(const struct plimsoll_counts *counts, unsigned gpu,
                                  const struct plimsoll_dead *dead);

/* Adds `bytes` to the slot's word for `gpu` if the ceiling allows; unless VERDICT_FITS, nothing was added. */
enum plimsoll_verdict plimsoll_ledger_reserve(struct plimsoll_counts *counts, unsigned slot, unsigned gpu,
                                              uint64_t bytes, const struct plimsoll_ceiling *ceiling);

/* Adds `bytes` without a judgement: for memory that is there already. */
void plimsoll_ledger_add(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes);

/* Notes whether the slot's process has a context on GPU `gpu`. */
void plimsoll_ledger_note_context(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, bool is_there);

/* A process on a GPU. */
struct plimsoll_listed {
    uint32_t pid; /* as it sees itself */
    uint64_t used_bytes;
};

/* Everybody who holds or reserves memory or has a context on GPU `gpu`; returns how many. */
unsigned plimsoll_ledger_list(const struct plimsoll_counts *counts, unsigned gpu,
                              struct plimsoll_listed listed[PLIMSOLL_MAX_SLOTS]);

/* The slot's turn after collision number `round`, counted from 0; false, at once, when there were enough.
 * Threads of one process must come here one at a time. */
bool plimsoll_ledger_pause(const struct plimsoll_counts *counts, unsigned slot, unsigned round);

/* Takes `bytes` off the slot's own word. */
void plimsoll_ledger_give_back(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes);

#endif
