/* The state file: creation, mapping, and the record locks that show which processes live. */
#ifndef PLIMSOLL_EMULATOR_BOOK_FILE_H
#define PLIMSOLL_EMULATOR_BOOK_FILE_H

#include "book/state.h"

/* Maps `<node file>.state` into book->state, creating it where needed. */
bool book_file_map(struct book *book, char message[NODE_MESSAGE_BYTES]);
/* Tries to take a slot's byte for the life of this process. */
bool book_file_hold_slot(int fd, int slot);
/* True if a process, this one included, holds the slot's byte. *pid is its pid in this process's PID
 * namespace; 0 = not visible there. */
bool book_file_slot_held(int fd, int slot, uint32_t *pid);
/* True while the owner of a slot lives. */
bool book_slot_alive(struct book *book, int slot);
/* True once this process has lost its slot, or can no longer see which others live. This is final. */
bool book_is_cut_off(const struct book *book);

#endif
