#include "cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "book/book.h"
#include "book/mps.h"
#include "book/node/file.h"
#include "book/state_file.h"
#include "cuda/visible.h"

enum {
    DOORBELL_NS = 300
}; /* about the time that a call needs at its end to submit the work that it prepared */

struct driver driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int initialised_pid; /* atomic; 0 = not yet. A forked child sees its parent's pid. */
static _Thread_local bool thread_forbidden;

static CUresult initialise(void) {
    char message[NODE_MESSAGE_BYTES];
    if (!book_open(&driver.book, message)) {
        fprintf(stderr, "plimsoll emulator: %s\n", message);
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    driver.device_count = visible_gpus(&driver.book.node, getenv("CUDA_VISIBLE_DEVICES"), driver.gpus);
    if (!driver.device_count)
        return CUDA_ERROR_NO_DEVICE;
    if (!book_join(&driver.book, message)) {
        fprintf(stderr, "plimsoll emulator: %s\n", message);
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    int pid = __atomic_load_n(&initialised_pid, __ATOMIC_ACQUIRE);
    if (pid)
        return pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&driver.lock);
    CUresult result = initialised_pid ? CUDA_SUCCESS : initialise();
    if (result == CUDA_SUCCESS)
        __atomic_store_n(&initialised_pid, getpid(), __ATOMIC_RELEASE);
    return driver_leave(result);
}

const struct node_file *driver_node(void) {
    static struct node_file node; /* driver.lock until is_known */
    static bool is_known;         /* driver.lock */
    char message[NODE_MESSAGE_BYTES];
    pthread_mutex_lock(&driver.lock);
    if (!is_known)
        is_known = node_file_read(node_file_path(), &node, message);
    if (!is_known)
        fprintf(stderr, "plimsoll emulator: %s\n", message);
    bool good = is_known;
    pthread_mutex_unlock(&driver.lock);
    return good ? &node : NULL;
}

CUresult cuDriverGetVersion(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    const struct node_file *node = driver_node();
    if (!node)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    *version = node->cuda_version;
    return CUDA_SUCCESS;
}

void driver_forbid_thread(bool forbidden) {
    thread_forbidden = forbidden;
}

CUresult driver_enter(void) {
    /* A child must not touch the lock: another thread of its parent may have held it at the fork. */
    if (__atomic_load_n(&initialised_pid, __ATOMIC_ACQUIRE) != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (thread_forbidden)
        return CUDA_ERROR_NOT_PERMITTED;
    if (!book_has_its_server(&driver.book, driver.book.slot))
        return CUDA_ERROR_MPS_CLIENT_TERMINATED;
    if (book_is_cut_off(&driver.book))
        return CUDA_ERROR_UNKNOWN;
    pthread_mutex_lock(&driver.lock);
    return CUDA_SUCCESS;
}

CUresult driver_leave(CUresult result) {
    bool is_cut_off = book_is_cut_off(&driver.book);
    pthread_mutex_unlock(&driver.lock);
    return is_cut_off && result == CUDA_SUCCESS ? CUDA_ERROR_UNKNOWN : result;
}

CUresult driver_last(uint64_t began_ns, uint64_t length_ns, CUresult result) {
    while (length_ns && book_now_ns() - began_ns < length_ns)
        ;
    return result;
}

uint64_t driver_prepare(uint64_t length_ns) {
    uint64_t began_ns = book_now_ns();
    if (length_ns > DOORBELL_NS)
        driver_last(began_ns, length_ns - DOORBELL_NS, CUDA_SUCCESS);
    return began_ns;
}

const struct node_gpu *driver_gpu(CUdevice device) {
    return &driver.book.node.gpus[driver.gpus[device]];
}
