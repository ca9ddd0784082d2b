/* A context's limits. */
#ifndef PLIMSOLL_EMULATOR_CONTEXT_STATE_H
#define PLIMSOLL_EMULATOR_CONTEXT_STATE_H

#include "cuda/context/context.h"

void context_default_limits(CUcontext context);
/* Bytes that the context's limits cost beside its own memory. */
size_t context_limit_bytes(const struct CUctx_st *context);

#endif
