/* Memory shared between processes: an anonymous file, whose last page says what it is, and a row in the book
 * that says who holds it. What always holds: a process has at most one `struct share` of each piece, and the
 * process that made the piece pays for it as long as it has it; after that another holder does. */
#ifndef PLIMSOLL_EMULATOR_SHARE_H
#define PLIMSOLL_EMULATOR_SHARE_H

#include "cuda/driver.h"

struct share {
    struct share *next; /* of all; lock */
    uint64_t id;
    size_t bytes;
    size_t paid_bytes; /* what this process's last use gives back */
    int gpu, fd;
    unsigned uses;
};

/* An anonymous file of a size; -1 = none to be had. */
int share_file(size_t bytes);
/* Offers to others what has been charged to this process and lives in such a file, which it takes over on
 * success. NULL when the book or the host is full. */
struct share *share_offer(int gpu, size_t bytes, size_t paid_bytes, int fd);
/* The same for memory at an address, whose contents move into a file of their own. */
struct share *share_move(int gpu, uint64_t base, size_t bytes, size_t paid_bytes);
/* What another process, or this one, has offered through this file; another use of it. INVALID_VALUE for a
 * file that is nothing of this node, INVALID_DEVICE where its GPU is not visible, OUT_OF_MEMORY. */
CUresult share_take(int fd, struct share **share);
void share_use(struct share *share);
/* With the last use of the process its hold ends and the file is closed. */
void share_drop(struct share *share);
/* Where it lies, as this process numbers devices. */
CUdevice share_device(const struct share *share);
/* Maps all of it; 0 = no address space. */
uint64_t share_map(const struct share *share);

#endif
