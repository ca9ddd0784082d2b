/* Memory shared between processes: an anonymous file, whose last page describes the memory, and a row in
 * the book with its holders. Invariants: a process has at most one `struct share` of each piece; the
 * process that made the piece pays for it as long as it holds it, and after that another holder pays. */
#ifndef PLIMSOLL_EMULATOR_SHARE_H
#define PLIMSOLL_EMULATOR_SHARE_H

#include "cuda/driver.h"

struct share {
    struct share *next; /* lock; in the list of all shares */
    uint64_t id;
    size_t bytes;
    size_t paid_bytes; /* bytes that the book refunds at this process's last use */
    int gpu, fd;
    unsigned uses;
};

/* Makes an anonymous file of a size; -1 if that fails. */
int share_file(size_t bytes);
/* Offers memory to other processes. The memory is charged to this process and lives in such a file; on
 * success the share owns the descriptor. NULL if the book or the host is full. */
struct share *share_offer(int gpu, size_t bytes, size_t paid_bytes, int fd);
/* Offers memory at an address, whose contents move into a new file. */
struct share *share_move(int gpu, uint64_t base, size_t bytes, size_t paid_bytes);
/* Gets the share that another process, or this one, has offered through this file, and counts a use of it.
 * INVALID_VALUE for a file that is not of this node, INVALID_DEVICE if the GPU is not visible, or
 * OUT_OF_MEMORY. */
CUresult share_take(int fd, struct share **share);
void share_use(struct share *share);
/* Ends a use. The process's last use ends its hold and closes the file. */
void share_drop(struct share *share);
/* The share's device, by this process's numbers. */
CUdevice share_device(const struct share *share);
/* Maps the whole share; 0 if there is no address space. */
uint64_t share_map(const struct share *share);

#endif
