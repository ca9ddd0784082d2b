/* Turns work that is submitted to a capturing stream into nodes of a graph. */
#ifndef PLIMSOLL_EMULATOR_STREAM_CAPTURE_RECORD_H
#define PLIMSOLL_EMULATOR_STREAM_CAPTURE_RECORD_H

#include "cuda/stream/capture/capture.h"
#include "cuda/stream/work.h"

/* Adds work to the graph being captured on this stream. */
CUresult capture_work(CUstream stream, const struct work *work);
/* Turn stream-ordered allocations and frees into nodes. Within a capture, only memory that a graph
 * allocated can be freed. */
CUresult capture_allocation(CUstream stream, CUmemoryPool pool, CUdeviceptr *address, size_t bytes);
CUresult capture_free(CUstream stream, CUdeviceptr address);
/* Takes all streams out of a capture and frees it, but not its graph. */
void capture_discard(struct capture *capture);
/* Sets the nodes on which the stream's next node will depend. False without host memory. */
bool capture_set_tips(CUstream stream, const CUgraphNode *nodes, size_t count);
void capture_forget_stream(CUstream stream);
void capture_forget_context(CUcontext context);

#endif
