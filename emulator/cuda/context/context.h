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
    struct awaited *awaited; /* events that all work still to come waits for; stream/awaited.c */
    size_t limits[CONTEXT_LIMITS];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
};

/* A context in the list of all, not yet active; NULL without host memory. */
CUcontext context_make(CUdevice device, unsigned flags);
/* Forgets an inactive context. */
void context_discard(CUcontext context);
/* The calling thread's current context; NULL = none. May name one that has been destroyed. */
CUcontext context_current(void);
/* Enters the driver, as driver_enter does; there must be a current context. */
CUresult context_enter(CUcontext *context);
/* Another number than before: a primary context that was reset is another one. */
void context_renew_id(CUcontext context);
/* Has the calling thread's stack room for another context? */
bool context_has_room(void);
void context_push(CUcontext context);
void context_pop(void);
/* All contexts, primary ones included, linked by `next`. */
CUcontext context_first(void);

#endif
