/* A context's limits. */
#ifndef PLIMSOLL_EMULATOR_CONTEXT_STATE_H
#define PLIMSOLL_EMULATOR_CONTEXT_STATE_H

#include "cuda/context/context.h"

void context_default_limits(CUcontext context);
/* What its limits cost beside it. */
size_t context_limit_bytes(const struct CUctx_st *context);

#endif
