/* The state file itself: creation, mapping, and the record locks that tell who is alive. */
#ifndef PLIMSOLL_EMULATOR_BOOK_FILE_H
#define PLIMSOLL_EMULATOR_BOOK_FILE_H

#include "book/state.h"

/* Maps `<node file>.state` into book->state, creating it where needed. */
bool book_file_map(struct book *book, char message[NODE_MESSAGE_BYTES]);
/* Tries to take a slot's byte for the life of this process. */
bool book_file_hold_slot(int fd, int slot);
void book_file_release_slot(int fd, int slot);
/* Does the book's descriptor still mean the state file? */
bool book_file_is_open(const struct book *book);
/* Does a process, this one included, hold the slot's byte? *pid is its pid in our PID namespace, 0 = not
 * visible here. */
bool book_file_slot_held(int fd, int slot, uint32_t *pid);
/* Does the owner of a slot live? */
bool book_slot_alive(struct book *book, int slot);
/* Has this process lost its slot, or its view of the others' lives? For good. */
bool book_is_cut_off(const struct book *book);

#endif
