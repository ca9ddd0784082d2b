/* Messages to the broker. None of these calls fails the program or blocks; only plimsoll_ask changes
 * errno. */
#ifndef PLIMSOLL_MESSAGES_H
#define PLIMSOLL_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "pages.h"

/* True if the process that made this container's socket has ended, and no other has made a new one. False
 * where that cannot be proved. Opens two descriptors for a moment. */
bool plimsoll_broker_is_gone(void);

void plimsoll_tell_hello(void);
/* False if the broker did not get it. */
bool plimsoll_tell_context(unsigned gpu);

/* At most one report per GPU and 100 ms. `denied_count` in the slot counts all refusals. */
void plimsoll_tell_denied(unsigned gpu, uint64_t requested_bytes, uint64_t used_bytes, uint64_t line_bytes,
                          const char *function);

void plimsoll_tell_given_back(unsigned gpu, uint64_t bytes, uint64_t used_bytes);

/* Sends a question on a connection of its own and returns the connection, for the answer. The caller closes
 * it. -1 where no broker takes the question. Changes errno. */
int plimsoll_ask(struct plimsoll_message *question);

/* At most a few reports per process. */
void plimsoll_tell_unknown(const char *function);

/* Reports the name that plimsoll_tell_unknown kept while there was no slot. */
void plimsoll_tell_kept(void);

#endif
