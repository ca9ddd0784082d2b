#include "book/mps.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "book/lock.h"
#include "book/state_file.h"

/* The directory is known by its inode, as a container may have it under another name. */
static bool find_pipe(struct book_mps *pipe) {
    struct stat directory;
    const char *name = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (stat(name ? name : "/tmp/nvidia-mps", &directory) != 0)
        return false;
    pipe->pipe_device = directory.st_dev;
    pipe->pipe_inode = directory.st_ino;
    return true;
}

bool book_serve_mps(struct book *book) {
    struct book_mps *own = &book->state->slots[book->slot].mps;
    book_lock(book);
    own->server = 0;
    own->is_server = find_pipe(own);
    book_unlock(book);
    return own->is_server;
}

void book_find_mps_locked(struct book *book, int slot) {
    struct book_mps *own = &book->state->slots[slot].mps, pipe;
    *own = (struct book_mps){0};
    if (!find_pipe(&pipe))
        return;
    for (int other = 0; other < (int)book->state->slots_touched; other++) {
        const struct book_slot *server = &book->state->slots[other];
        if (other == slot || !server->pid || !server->mps.is_server ||
            server->mps.pipe_device != pipe.pipe_device || server->mps.pipe_inode != pipe.pipe_inode)
            continue;
        own->server = (uint32_t)other + 1;
        own->server_claimed_ns = server->claimed_ns;
        return;
    }
}

bool book_has_its_server(const struct book *book, int slot) {
    const struct book_mps *own = &book->state->slots[slot].mps;
    uint32_t pid, server = __atomic_load_n(&own->server, __ATOMIC_RELAXED);
    if (!server)
        return true;
    const struct book_slot *found = &book->state->slots[server - 1];
    return __atomic_load_n(&found->claimed_ns, __ATOMIC_RELAXED) == own->server_claimed_ns &&
           book_file_slot_held(book->fd, (int)server - 1, &pid);
}
