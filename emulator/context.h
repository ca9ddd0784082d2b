/* Contexts and the calling thread's stack of them. */
#ifndef PLIMSOLL_EMULATOR_CONTEXT_H
#define PLIMSOLL_EMULATOR_CONTEXT_H

#include "driver.h"

enum { CONTEXT_LIMITS = CU_LIMIT_MAX };

struct CUctx_st {
    struct object object;
    CUcontext next; /* of all */
    CUdevice device;
    int gpu;       /* driver.gpus[device] */
    unsigned uses; /* of a primary context: retains; 0 = not active */
    bool primary;
    unsigned peers; /* devices with peer access enabled, one bit each */
    bool charged;   /* its own memory stands in the book */
    unsigned flags;
    unsigned long long id;
    CUstream legacy;  /* the default stream */
    CUstream streams; /* all others, per-thread default streams included */
    size_t limits[CONTEXT_LIMITS];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
};

/* The calling thread's current context; NULL = none. May name one that has been destroyed. */
CUcontext context_current(void);
/* All contexts, primary ones included, linked by `next`. */
CUcontext context_first(void);

#endif
