/* Memory that graphs allocate. Its address is fixed when the node is made; its physical memory comes from the
 * device's own pool for graphs when an executable graph is uploaded or launched, and stays there, whatever is
 * destroyed, until cuDeviceGraphMemTrim (CUDA programming guide, "Graph memory nodes").
 *
 * What always holds: an allocation is live from the launch of its allocation node to its free, in the order
 * of the calls; what graphs have mapped never exceeds what the pool has reserved, and that stands in the
 * book. */
#ifndef PLIMSOLL_EMULATOR_GRAPH_MEMORY_H
#define PLIMSOLL_EMULATOR_GRAPH_MEMORY_H

#include "cuda/graph/allocation.h"
#include "cuda/graph/graph.h"

/* Ends a live allocation; INVALID_VALUE for one that is not. */
CUresult graph_memory_free(struct graph_allocation *allocation);

/* Maps what an executable graph needs. OUT_OF_MEMORY leaves everything as it was. */
CUresult graph_memory_upload(CUgraphExec exec, CUstream stream);
/* Before the nodes are handed to the stream: maps, and makes allocations live and frees them. INVALID_VALUE
 * while one of an earlier launch is live, unless the graph frees on launch. */
CUresult graph_memory_launch(CUgraphExec exec, CUstream stream);
/* After the nodes were handed over: from here on the stream tells when they are done. */
void graph_memory_launched(CUgraphExec exec, CUstream stream);
/* The executable graph goes; what is live of it stays until it is freed. */
void graph_memory_destroyed(CUgraphExec exec);
/* Gives back what no graph that runs, is about to run, or has something live needs. */
void graph_memory_trim(CUdevice device);
/* The last context of a device is gone, and with it all that graphs hold there. */
void graph_memory_leave(CUdevice device);
/* A figure of a device's pool as it is now; NULL = no such attribute. */
size_t *graph_memory_figure(CUdevice device, CUgraphMem_attribute attribute);

#endif
