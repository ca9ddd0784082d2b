/* Waiting for memory that others hold, where the node promised more than it has. */
#ifndef PLIMSOLL_WAITING_H
#define PLIMSOLL_WAITING_H

#include <stdbool.h>
#include <stdint.h>

/* Asks the broker for `bytes` on a GPU of `limits` and blocks until it answers. True: the grant was raised,
 * try again. False: refused, or no broker for 60 s; a line on standard error says why. Call it without any
 * lock, and never in a thread whose stream is capturing. `turn` counts from 0 how often this request was
 * granted and lost to a faster one. Leaves errno alone; the program's signals are handled as ever. */
bool plimsoll_wait_for_memory(unsigned gpu, uint64_t bytes, unsigned turn, const char *function);

/* After a give-back: tells the broker if somebody waits for memory on that GPU. */
void plimsoll_tell_freed(unsigned gpu, uint64_t bytes);

#endif
