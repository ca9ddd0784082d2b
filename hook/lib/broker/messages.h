/* Datagrams to the broker. None of these ever fails the program, blocks, or changes errno. */
#ifndef PLIMSOLL_MESSAGES_H
#define PLIMSOLL_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "pages.h"

/* A new connection to the broker, -1 for none; and one message over it, in this process's name. They change
 * errno. */
int plimsoll_connect(void);
bool plimsoll_send_on(int connection, struct plimsoll_message *message);

void plimsoll_tell_hello(void);
void plimsoll_tell_context(unsigned gpu);

/* At most one per GPU and 100 ms; `denied_count` in the slot counts them all. */
void plimsoll_tell_denied(unsigned gpu, uint64_t requested_bytes, uint64_t used_bytes, uint64_t line_bytes,
                          const char *function);

void plimsoll_tell_given_back(unsigned gpu, uint64_t bytes, uint64_t used_bytes);

/* Sends a question on a connection of its own and returns that, for the answer; the caller closes it. -1
 * where no broker takes it. Changes errno. */
int plimsoll_ask(struct plimsoll_message *question);

/* At most a few per process. */
void plimsoll_tell_unknown(const char *function);

/* What plimsoll_tell_unknown kept while there was no slot. */
void plimsoll_tell_kept(void);

#endif
