/* NVIDIA's Multi-Process Service: a server process, and the processes that run their work through it.
 *
 * As from Volta on, a client has its own context and memory and is listed by itself; the server is listed
 * too. A process that begins to use CUDA finds the server by the directory that CUDA_MPS_PIPE_DIRECTORY
 * names, and is its client from then on. When the server ends, whatever its clients hold on GPUs is freed,
 * and all their calls fail. Clients take turns here as other processes do; the real service lets their
 * kernels overlap. */
#ifndef PLIMSOLL_EMULATOR_BOOK_MPS_H
#define PLIMSOLL_EMULATOR_BOOK_MPS_H

#include "book/state.h"

/* Makes this process, which has a slot, the server of CUDA_MPS_PIPE_DIRECTORY. False if there is no such
 * directory. */
bool book_serve_mps(struct book *book);
/* Makes the process in a new slot the client of the living server, if there is one. The caller holds the
 * book's lock. */
void book_find_mps_locked(struct book *book, int slot);
/* False for a client whose server has ended; true for every other process. */
bool book_has_its_server(const struct book *book, int slot);

#endif
