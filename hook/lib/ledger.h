/* Reservations in `counts`: who may hold how much, without a lock and without a stored total. */
#ifndef PLIMSOLL_LEDGER_H
#define PLIMSOLL_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

#define PLIMSOLL_NO_LINE UINT64_MAX

/* Claims a slot for `owner`: its own from before an exec, else a free one. Returns its index with all its
 * words 0 and `slots_touched` past it, or -1 when all are taken. */
int plimsoll_ledger_claim(struct plimsoll_counts *counts, uint64_t owner);

/* What all processes together have reserved or hold on GPU `gpu`, saturating. */
uint64_t plimsoll_ledger_used(const struct plimsoll_counts *counts, unsigned gpu);

/* Adds `bytes` to the slot's word for `gpu` if all words together then stay within `line_bytes`; with
 * PLIMSOLL_NO_LINE always. False, with nothing added, if they would not. */
bool plimsoll_ledger_reserve(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes,
                             uint64_t line_bytes);

/* After a refusal: tries again a few times in slot order, in case it was only a collision. Threads of one
 * process must come here one at a time. */
bool plimsoll_ledger_retry(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes,
                           uint64_t line_bytes);

/* Takes `bytes` off the slot's own word. */
void plimsoll_ledger_give_back(struct plimsoll_counts *counts, unsigned slot, unsigned gpu, uint64_t bytes);

#endif
