/* The container's gate: one word that the broker writes, and the numbers beside it. */
#ifndef PLIMSOLL_GATE_H
#define PLIMSOLL_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "pages.h"

/* Follows this mapping's word from now on. Called once, before this process is attached. */
void plimsoll_gate_follow(const struct plimsoll_gate *gate);

/* Whether there is one. */
bool plimsoll_has_gate(void);

uint32_t plimsoll_gate_word(void);

/* One of PLIMSOLL_GATE_OPEN, _METERED, _SHUT: what holds at this moment. Open too where the broker has shown
 * no beat for three seconds, as nobody would open the gate; the program is told once. */
uint32_t plimsoll_gate_state(uint32_t word, uint64_t now_ns);

/* Sleeps until the word is no longer `seen`, at most so long; a signal ends it too. Leaves errno alone. */
void plimsoll_gate_sleep(uint32_t seen, uint64_t longest_ns);

/* Has all who sleep look again at what they wait for. Leaves errno alone. */
void plimsoll_gate_stir(void);

/* From the gate's page: see plimsoll/broker/pages.py. A page that says 0 means the least that works. */
uint64_t plimsoll_gate_ahead_ns(void);
uint64_t plimsoll_gate_alone_ns(void);
uint64_t plimsoll_gate_slice_ns(void);
uint64_t plimsoll_gate_sharers(void);

#endif
