/* Contexts and the calling thread's stack of them. */
#ifndef PLIMSOLL_EMULATOR_CONTEXT_H
#define PLIMSOLL_EMULATOR_CONTEXT_H

#include "cuda/driver.h"

enum { CONTEXT_LIMITS = CU_LIMIT_MAX };

struct CUctx_st {
    struct object object;
    CUcontext next; /* of all */
    CUdevice device;
    int gpu;       /* driver.gpus[device] */
    unsigned uses; /* of a primary context: retains; 0 = not active */
    bool primary;
    unsigned attached; /* cuCtxAttach calls that are not detached */
    unsigned peers;    /* devices with peer access enabled, one bit each */
    bool charged;      /* its own memory stands in the book */
    size_t own_bytes;
    CUgreenCtx green; /* the green context that this one is the other face of; NULL = none */
    CUcontext owner;  /* of what is allocated in it: the primary context for a green one, else itself */
    unsigned flags;
    unsigned long long id;
    CUstream legacy;         /* the default stream */
    CUstream streams;        /* all others, per-thread default streams included */
    struct awaited *awaited; /* events that all work still to come waits for; stream/event_context.c */
    size_t limits[CONTEXT_LIMITS];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
};

/* A context in the list of all, not yet active; NULL without host memory. */
CUcontext context_make(CUdevice device, unsigned flags);
/* Charges what it costs; false where there is no room. A failed one is deactivated too. */
bool context_activate(CUcontext context);
void context_default_limits(CUcontext context);
/* What its limits cost beside it. */
size_t context_limit_bytes(const struct CUctx_st *context);
/* Frees all that lives in a context, after its work is done or dropped. Leaves a primary context inactive. */
void context_deactivate(CUcontext context);
/* Forgets an inactive context. */
void context_discard(CUcontext context);
/* Retains a device's primary context, as cuDevicePrimaryCtxRetain does. */
CUresult context_retain(CUcontext *context, CUdevice device);
/* Ends one retain; the last one deactivates, after all work is done. */
void context_let_go(CUcontext primary);
/* The calling thread's current context; NULL = none. May name one that has been destroyed. */
CUcontext context_current(void);
/* All contexts, primary ones included, linked by `next`. */
CUcontext context_first(void);

#endif
