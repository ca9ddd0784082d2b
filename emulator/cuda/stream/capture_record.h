/* What a capturing stream is handed becomes nodes of a graph. */
#ifndef PLIMSOLL_EMULATOR_STREAM_CAPTURE_RECORD_H
#define PLIMSOLL_EMULATOR_STREAM_CAPTURE_RECORD_H

#include "cuda/stream/capture.h"
#include "cuda/stream/work.h"

/* Adds work to the graph being captured on this stream. */
CUresult capture_work(CUstream stream, const struct work *work);
/* Stream-ordered memory within a capture becomes nodes. Only what a graph allocated can be freed there. */
CUresult capture_allocation(CUstream stream, CUmemoryPool pool, CUdeviceptr *address, size_t bytes);
CUresult capture_free(CUstream stream, CUdeviceptr address);
/* Takes all streams out of a capture and frees it, but not its graph. */
void capture_discard(struct capture *capture);
/* What the next node on this stream will depend on. False without host memory. */
bool capture_set_tips(CUstream stream, const CUgraphNode *nodes, size_t count);
bool capture_add_tip(CUstream stream, CUgraphNode node);
void capture_forget_stream(CUstream stream);
void capture_forget_context(CUcontext context);

#endif
