/* Creates and maps the state file of an emulated node. A book is complete once its magic is set. A process
 * that finds no magic initialises the book under a record lock on one byte. If that process dies half way,
 * the kernel drops the lock and the next process starts over. */
#include "book/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36 /* Linux 3.15; glibc's headers have it since 2.20 */
#endif

enum {
    LOCK_CREATION = 1 << 30,
    LOCK_SLOTS = LOCK_CREATION + 1
}; /* bytes past the file's end, used for locks only */

static struct flock byte_lock(short type, off_t byte) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

bool book_file_hold_slot(int fd, int slot) {
    struct flock lock = byte_lock(F_WRLCK, LOCK_SLOTS + slot);
    return fcntl(fd, F_SETLK, &lock) == 0;
}

bool book_file_slot_held(int fd, int slot, uint32_t *pid) {
    /* F_OFD_GETLK asks for the open file, not for this process. F_GETLK would ignore this process's own
     * locks, and libnvidia-ml would take the slot of a process that also has libcuda for a dead one. */
    struct flock lock = byte_lock(F_WRLCK, LOCK_SLOTS + slot);
    if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
        return false;
    *pid = lock.l_pid > 0 ? (uint32_t)lock.l_pid : 0;
    return true;
}

/* True while the book's descriptor still means the state file. */
static bool is_open(const struct book *book) {
    struct stat status;
    return fstat(book->fd, &status) == 0 && status.st_dev == book->device && status.st_ino == book->inode;
}

static bool lock_creation(int fd) {
    struct flock lock = byte_lock(F_WRLCK, LOCK_CREATION);
    int result;
    do
        result = fcntl(fd, F_SETLKW, &lock);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

static void unlock_creation(int fd) {
    struct flock lock = byte_lock(F_UNLCK, LOCK_CREATION);
    fcntl(fd, F_SETLK, &lock);
}

static void init_mutex(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static uint64_t digest_of(const struct node_file *node) {
    const unsigned char *byte = (const unsigned char *)node + offsetof(struct node_file, driver);
    const unsigned char *end = (const unsigned char *)(node + 1);
    uint64_t hash = 14695981039346656037ull;
    while (byte < end)
        hash = (hash ^ *byte++) * 1099511628211ull;
    return hash;
}

static void initialise(struct book_state *state, const struct node_file *node) {
    uint64_t now_ns = book_now_ns();
    init_mutex(&state->lock);
    for (int i = 0; i < NODE_MAX_GPUS; i++) {
        init_mutex(&state->gpus[i].clock_lock);
        state->gpus[i].clock_ns = state->gpus[i].sample_start_ns = now_ns;
        state->gpus[i].turn = -1;
    }
    state->version = BOOK_VERSION;
    state->size = sizeof *state;
    state->digest = digest_of(node);
    __atomic_store_n(&state->magic, BOOK_MAGIC, __ATOMIC_RELEASE);
}

static bool refuse(char *message, const char *path, const char *what, const char *remedy) {
    snprintf(message, NODE_MESSAGE_BYTES, "%.1100s: %.100s: %.300s", path, what, remedy);
    return false;
}

static bool map(struct book *book, const char *path, char *message) {
    struct stat status;
    if (fstat(book->fd, &status) != 0)
        return refuse(message, path, "state file", strerror(errno));
    if (status.st_size != 0 && status.st_size != (off_t)sizeof(struct book_state))
        return refuse(message, path, "size", "of another version of the emulator; remove the file");
    if (status.st_size == 0 && ftruncate(book->fd, (off_t)sizeof(struct book_state)) != 0)
        return refuse(message, path, "state file", strerror(errno));
    void *memory = mmap(NULL, sizeof(struct book_state), PROT_READ | PROT_WRITE, MAP_SHARED, book->fd, 0);
    if (memory == MAP_FAILED)
        return refuse(message, path, "state file", strerror(errno));
    book->state = memory;
    book->device = status.st_dev;
    book->inode = status.st_ino;
    return true;
}

static bool check(const struct book *book, const char *path, char *message) {
    const struct book_state *state = book->state;
    if (state->magic != BOOK_MAGIC || state->version != BOOK_VERSION || state->size != sizeof *state)
        return refuse(message, path, "version", "of another version of the emulator; remove the file");
    if (state->digest != digest_of(&book->node))
        return refuse(message, path, "node",
                      "the node file has changed since; end the node's processes and remove this file");
    return true;
}

bool book_file_map(struct book *book, char message[NODE_MESSAGE_BYTES]) {
    char path[NODE_PATH_BYTES + sizeof ".state"];
    snprintf(path, sizeof path, "%s.state", book->node.path);
    mode_t mode = 0666;
    book->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, mode);
    if (book->fd < 0)
        return refuse(message, path, "state file", strerror(errno));
    /* Pods of one node run under many users, so the first one's umask must not shut the others out. Only
     * the file's creator may change its mode. */
    if (fchmod(book->fd, mode) != 0 && errno != EPERM)
        return refuse(message, path, "state file", strerror(errno));
    if (!lock_creation(book->fd))
        return refuse(message, path, "state file", strerror(errno));
    bool good = map(book, path, message);
    if (good && book->state->magic == 0)
        initialise(book->state, &book->node);
    unlock_creation(book->fd);
    return good && check(book, path, message);
}

/* Without the state file's descriptor a process cannot see others' locks. It must then not take them for
 * dead. */
bool book_slot_alive(struct book *book, int slot) {
    uint32_t pid;
    if (slot == book->slot || book_file_slot_held(book->fd, slot, &pid))
        return true;
    if (is_open(book))
        return false;
    __atomic_store_n(&book->is_file_lost, true, __ATOMIC_RELAXED);
    return true;
}

bool book_is_cut_off(const struct book *book) {
    if (!book->state || book->slot < 0)
        return false;
    return __atomic_load_n(&book->is_file_lost, __ATOMIC_RELAXED) ||
           __atomic_load_n(&book->state->slots[book->slot].claimed_ns, __ATOMIC_RELAXED) != book->claimed_ns;
}
