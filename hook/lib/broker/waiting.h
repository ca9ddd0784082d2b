/* Waiting for memory that others hold, where the node promised more than it has. */
#ifndef PLIMSOLL_WAITING_H
#define PLIMSOLL_WAITING_H

#include <stdbool.h>
#include <stdint.h>

/* Asks the broker for `bytes` on a GPU of `limits` and blocks until it answers. True: the grant was
 * raised, so try again. False: refused, or no broker for 60 s; a line on standard error gives the reason.
 * Call this without any lock, and never in a thread whose stream is capturing. `turn` counts from 0 how
 * often this request was granted and lost to a faster process. Keeps errno; signals of the program are
 * handled as usual. */
bool plimsoll_wait_for_memory(unsigned gpu, uint64_t bytes, unsigned turn, const char *function);

/* After a give-back: reports it to the broker if another process waits for memory on that GPU. */
void plimsoll_tell_freed(unsigned gpu, uint64_t bytes);

#endif
