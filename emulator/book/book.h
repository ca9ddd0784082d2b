/* Slots and memory of the shared book; see state.h for what always holds. */
#ifndef PLIMSOLL_EMULATOR_BOOK_BOOK_H
#define PLIMSOLL_EMULATOR_BOOK_BOOK_H

#include "book/state.h"

/* Reads the node file named by PLIMSOLL_EMULATOR and maps its book, creating it where needed; claims no slot.
 * Any number of processes may race. False with a one-line message on failure. */
bool book_open(struct book *book, char message[NODE_MESSAGE_BYTES]);
/* Claims a slot for this process (once). False when all slots are taken by living processes. */
bool book_join(struct book *book, char message[NODE_MESSAGE_BYTES]);

/* Charges `bytes` on a GPU to this process. False if the card, or a limit of the process's control groups,
 * has no room even after dead processes are swept. */
bool book_charge(struct book *book, int gpu, uint64_t bytes);
void book_refund(struct book *book, int gpu, uint64_t bytes);
/* Records the purpose of a part of this process's charge. */
void book_note(struct book *book, int gpu, enum book_purpose purpose, int64_t change_bytes);
/* Counts contexts of this process on a GPU. NVML lists a process while it has a context. */
void book_count_context(struct book *book, int gpu, int change);
/* Bytes that neither a living process nor the driver holds. */
uint64_t book_free_bytes(struct book *book, int gpu);

/* The caller of these functions holds the book's lock. */
void book_sweep_locked(struct book *book);
/* A card in MIG mode uses what its instances use. */
uint64_t book_used_locked(const struct book *book, int gpu);
bool book_charge_locked(struct book *book, int gpu, uint64_t bytes);
void book_refund_locked(struct book *book, int gpu, uint64_t bytes);

#endif
