/* The driver within one process: its one lock, its initialisation, and the helpers of all API functions.
 *
 * Invariants: the one lock guards every process-local object; no wait and no callback of the program
 * happens under it; a forked child finds the driver uninitialised, as with NVIDIA's. */
#ifndef PLIMSOLL_EMULATOR_DRIVER_H
#define PLIMSOLL_EMULATOR_DRIVER_H

/* All versions of all functions, legacy ones included, under their real names. */
#define __CUDA_API_VERSION_INTERNAL
/* The libraries export the functions that the header declares and hide everything else. */
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>

#include <pthread.h>

#include "book/book.h"
#include "cuda/object.h"

struct driver {
    pthread_mutex_t lock;
    struct book book;                   /* set by cuInit; has its own locks */
    int device_count;                   /* visible devices; set once */
    int gpus[NODE_MAX_GPUS];            /* device → GPU of the node; set once */
    CUcontext primaries[NODE_MAX_GPUS]; /* lock; by device */
    unsigned primary_flags[NODE_MAX_GPUS];
};

extern struct driver driver;

/* Each API function enters, works, and leaves. Entering takes the lock unless it returns an error:
 * NOT_INITIALIZED before cuInit or in a forked child, NOT_PERMITTED from a host function, UNKNOWN if the
 * program closed the driver's descriptors, MPS_CLIENT_TERMINATED after the end of its MPS server. A call that
 * detects the closed descriptors on its way fails too. */
CUresult driver_enter(void);
CUresult driver_leave(CUresult result);
/* Makes a call last as long as with a real driver: returns `result` once `length_ns` have passed since
 * `began_ns`, and keeps the CPU busy meanwhile. The caller has left the driver. */
CUresult driver_last(uint64_t began_ns, uint64_t length_ns, CUresult result);

/* Begins such a call that submits work: a real driver works first and submits at the end of the call.
 * Returns the time at which the call began. */
uint64_t driver_prepare(uint64_t length_ns);

/* Marks the thread while it runs a host function, which may not call the driver. */
void driver_forbid_thread(bool forbidden);

/* The node's description, available before cuInit too. NULL, with a line on standard error, if the node
 * file is bad. */
const struct node_file *driver_node(void);
const struct node_gpu *driver_gpu(CUdevice device);
static inline bool driver_has_device(CUdevice device) {
    return device >= 0 && device < driver.device_count;
}

#endif
