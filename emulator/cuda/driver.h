/* The driver within one process: its one lock, its initialisation, and what the API functions share.
 *
 * What always holds: every process-local object is guarded by the one lock; no wait and no callback of the
 * program happens under it; a forked child finds the driver uninitialised, as with NVIDIA's. */
#ifndef PLIMSOLL_EMULATOR_DRIVER_H
#define PLIMSOLL_EMULATOR_DRIVER_H

/* All versions of all functions, legacy ones included, under their real names. */
#define __CUDA_API_VERSION_INTERNAL
/* What the header declares is exported, everything else is hidden. */
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>

#include <pthread.h>

#include "book/book.h"
#include "cuda/object.h"

struct driver {
    pthread_mutex_t lock;
    struct book book;                   /* its address fixed by cuInit; its contents guard themselves */
    int device_count;                   /* visible; set once */
    int gpus[NODE_MAX_GPUS];            /* device → GPU of the node; set once */
    CUcontext primaries[NODE_MAX_GPUS]; /* lock; by device */
    unsigned primary_flags[NODE_MAX_GPUS];
};

extern struct driver driver;

/* Each API function enters, works, leaves. Entering takes the lock unless it returns an error:
 * NOT_INITIALIZED before cuInit or in a forked child, NOT_PERMITTED from a host function, UNKNOWN where the
 * program closed the driver's descriptors. A call during which that is found out does not succeed either. */
CUresult driver_enter(void);
CUresult driver_leave(CUresult result);
/* For calls that cost the host as much as with a real driver: returns `result` when the call, which began at
 * `began_ns`, has lasted that long. The CPU is kept busy meanwhile. The caller has left. */
CUresult driver_last(uint64_t began_ns, uint64_t length_ns, CUresult result);

/* The beginning of such a call that gives the GPU something: a driver works first, and hands over at the end.
 * Returns when the call began. */
uint64_t driver_prepare(uint64_t length_ns);

/* Host functions run with this set; they may not call the driver. */
void driver_forbid_thread(bool forbidden);

/* The node's description, before cuInit too; NULL with a line on standard error where it is bad. */
const struct node_file *driver_node(void);
const struct node_gpu *driver_gpu(CUdevice device);
static inline bool driver_has_device(CUdevice device) {
    return device >= 0 && device < driver.device_count;
}

#endif
