/* Stream capture: what a stream is handed becomes nodes of a graph instead of running. */
#ifndef PLIMSOLL_EMULATOR_CAPTURE_H
#define PLIMSOLL_EMULATOR_CAPTURE_H

#include "cuda/stream/work.h"

struct capture;

/* May this thread make calls that a capture cannot record (allocations, synchronisation)? False also
 * invalidates the captures that forbid it. */
bool capture_permits(void);
/* Adds work to the graph being captured on this stream. */
CUresult capture_work(CUstream stream, const struct work *work);
/* Stream-ordered memory within a capture becomes nodes. Only what a graph allocated can be freed there. */
CUresult capture_allocation(CUstream stream, CUmemoryPool pool, CUdeviceptr *address, size_t bytes);
CUresult capture_free(CUstream stream, CUdeviceptr address);
void capture_invalidate(struct capture *capture);
/* Would work on this stream implicitly depend on a stream that captures? (The legacy default stream and
 * blocking ones.) Invalidates that capture. */
bool capture_meets_legacy(CUstream stream);
/* The capture a stream takes part in; NULL = none. */
struct capture *capture_of(CUstream stream);
bool capture_in_context(CUcontext context);
/* Is the capture of this number under way? Invalidates it. */
bool capture_is_under_way(uint64_t id);
void capture_forget_stream(CUstream stream);
void capture_forget_context(CUcontext context);

#endif
