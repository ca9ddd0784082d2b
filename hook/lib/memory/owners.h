/* The process that owns a slot, and whether that process is dead. */
#ifndef PLIMSOLL_OWNERS_H
#define PLIMSOLL_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger.h"

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

#endif
