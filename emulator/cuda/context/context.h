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
    unsigned uses; /* retains of a primary context; 0 = not active */
    bool primary;
    unsigned attached; /* cuCtxAttach calls that are not detached */
    unsigned peers;    /* devices with peer access enabled, one bit each */
    bool charged;      /* the book charges its own memory */
    size_t own_bytes;
    CUgreenCtx green; /* the green context that this context represents; NULL = none */
    CUcontext owner;  /* owner of this context's memory: for a green context its primary one, else itself */
    unsigned long long id;
    CUstream legacy;         /* the default stream */
    CUstream streams;        /* all others, per-thread default streams included */
    struct awaited *awaited; /* events that all later work waits for; stream/awaited.h */
    size_t limits[CONTEXT_LIMITS];
};

/* Makes an inactive context in the list of all contexts; NULL without host memory. */
CUcontext context_make(CUdevice device);
/* Forgets an inactive context. */
void context_discard(CUcontext context);
/* The calling thread's current context; NULL = none. The context may have been destroyed. */
CUcontext context_current(void);
/* The current context, within the driver; an error if the thread has none, or if it cannot be used. */
CUresult context_find(CUcontext *context);
/* Enters the driver, as driver_enter does, and finds the current context. */
CUresult context_enter(CUcontext *context);
/* Gives the context a new id: a primary context after a reset counts as another context. */
void context_renew_id(CUcontext context);
/* True if the calling thread's stack has room for another context. */
bool context_has_room(void);
void context_push(CUcontext context);
void context_pop(void);
/* All contexts, primary ones included, linked by `next`. */
CUcontext context_first(void);

#endif
