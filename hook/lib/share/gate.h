/* The container's gate: one word that the broker writes, and the numbers beside it. */
#ifndef PLIMSOLL_GATE_H
#define PLIMSOLL_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "pages.h"

/* Follows the word of this mapping from now on. Called once, before this process is attached. */
void plimsoll_gate_follow(const struct plimsoll_gate *gate);

/* Whether this container has a gate. */
bool plimsoll_has_gate(void);

uint32_t plimsoll_gate_word(void);

/* The gate's state at this moment: PLIMSOLL_GATE_OPEN, _METERED or _SHUT. While the broker is lost,
 * nobody would open the gate, and the container's limit alone decides: the beat is three seconds old, or late
 * and the broker has ended. Standard error reports that once. Keeps errno. */
uint32_t plimsoll_gate_state(uint32_t word, uint64_t now_ns);

/* Sleeps until the word is no longer `seen`, or for `longest_ns`. A signal ends the sleep too. Keeps
 * errno. */
void plimsoll_gate_sleep(uint32_t seen, uint64_t longest_ns);

/* Wakes every thread that sleeps at the gate, to check its condition again. Keeps errno. */
void plimsoll_gate_wake(void);

/* Numbers from the gate's page: see plimsoll/broker/pages.py. A 0 on the page means the least value that
 * works. */
uint64_t plimsoll_gate_ahead_ns(void);
uint64_t plimsoll_gate_alone_ns(void);
uint64_t plimsoll_gate_slice_ns(void);
uint64_t plimsoll_gate_sharers(void);

#endif
