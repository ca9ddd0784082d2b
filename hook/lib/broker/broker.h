/* The broker, as the rest of the library sees it. */
#ifndef PLIMSOLL_BROKER_H
#define PLIMSOLL_BROKER_H

#include "state.h"

/* --- attach.c: how a process comes under its container's limits -----------------------------------------
 */

/* Maps the container's files and claims a slot. Waits up to 10 s for the first valid limits and a slot.
 * Returns ATTACHMENT_FULL or ATTACHMENT_NONE. Any other value means that the process gets no GPU, and one
 * line on standard error gives the reason. */
enum plimsoll_attachment plimsoll_attach(void);

/* Maps the files if they exist now, without waiting and without a slot: that is enough for the views. Returns
 * ATTACHMENT_UNKNOWN where the container's limits do not exist yet. */
enum plimsoll_attachment plimsoll_map_files(void);

/* The directory with the container's limits; NULL where this process is not under Plimsoll. */
const char *plimsoll_find_limits(void);

/* --- limits.c: reads `limits` while the broker may be rewriting it --------------------------------------
 */

/* Copies a consistent state of the mapping. False while the file is being rewritten, or if it is torn or not
 * ours: wrong magic, version or size, too many GPUs, an identity that is no UUID. */
bool plimsoll_limits_copy(const struct plimsoll_limits *mapping, struct plimsoll_limits *copy);

/* The 16 bytes of "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" (or "MIG-"); false if `text` is no such name. */
bool plimsoll_uuid_bytes(const char *text, unsigned char bytes[16]);

/* Stores the first copy of `limits`: the identities of the GPUs, which never change, and their numbers. */
void plimsoll_limits_store(const struct plimsoll_limits *copy);

/* Stores the numbers of a changed `limits`. Costs one load and one comparison if the file has not changed. */
void plimsoll_refresh(void);

/* --- messages.c -----------------------------------------------------------------------------------------
 *
 * None of these calls fails the program or blocks; only plimsoll_ask changes errno.
 */

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

/* --- waiting.c: waiting for memory that others hold, where the node promised more than it has -----------
 */

/* Asks the broker for `bytes` on a GPU of `limits` and blocks until it answers. True: the grant was
 * raised, so try again. False: refused, or no broker for 60 s; a line on standard error gives the reason.
 * Call this without any lock, and never in a thread whose stream is capturing. `turn` counts from 0 how
 * often this request was granted and lost to a faster process. Keeps errno; signals of the program are
 * handled as usual. */
bool plimsoll_wait_for_memory(unsigned gpu, uint64_t bytes, unsigned turn, const char *function);

/* After a give-back: reports it to the broker if another process waits for memory on that GPU. */
void plimsoll_tell_freed(unsigned gpu, uint64_t bytes);

#endif
