/* The container's gate: one word that the broker writes, and who waits for it. */
#ifndef PLIMSOLL_GATE_H
#define PLIMSOLL_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Follows this mapping's word from now on. Called once, before this process is attached. */
struct plimsoll_gate;
void plimsoll_gate_follow(const struct plimsoll_gate *gate);

/* Whether there is one. */
bool plimsoll_has_gate(void);

uint32_t plimsoll_gate_word(void);

/* Sleeps until the word is no longer `seen`, at most so long; a signal ends it too. Leaves errno alone. */
void plimsoll_gate_sleep(uint32_t seen, uint64_t longest_ns);

/* Waits while the gate is shut under this word, the broker lives, and a launch in this context may not follow
 * others (stalls.h); tells the broker that a launch waits. False in the child of a fork that a signal's
 * handler made meanwhile. */
bool plimsoll_gate_wait(uint32_t word, uint64_t context);

/* Has all who sleep until the gate says something else look again. Leaves errno alone. */
void plimsoll_gate_stir(void);

/* Whether there is no broker any more: the gate then counts as open. */
bool plimsoll_gate_is_lost(void);

/* For the keeper, once in a while: whether the broker is still there. True when a lost one, or another, is
 * back: what was launched meanwhile is not known. */
bool plimsoll_gate_seek(uint32_t word);

#endif
