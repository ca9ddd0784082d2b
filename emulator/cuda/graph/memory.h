/* Memory that graphs allocate. Its address is fixed when the node is made. Its physical memory comes from
 * the device's pool for graphs when an executable graph is uploaded or launched. That pool keeps the
 * memory, even after the graph is destroyed, until cuDeviceGraphMemTrim (CUDA programming guide, "Graph
 * memory nodes").
 *
 * Invariants: an allocation is live from the launch of its allocation node to its free, in the order of
 * the calls; the bytes that graphs have mapped never exceed the pool's reserved bytes, which the book
 * charges. */
#ifndef PLIMSOLL_EMULATOR_GRAPH_MEMORY_H
#define PLIMSOLL_EMULATOR_GRAPH_MEMORY_H

#include "cuda/graph/allocation.h"
#include "cuda/graph/graph.h"

/* Ends a live allocation; INVALID_VALUE if it is not live. */
CUresult graph_memory_free(struct graph_allocation *allocation);

/* Maps the memory that an executable graph needs. OUT_OF_MEMORY changes nothing. */
CUresult graph_memory_upload(CUgraphExec exec, CUstream stream);
/* Maps memory, makes allocations live and frees them, before the nodes are submitted. INVALID_VALUE while
 * an allocation of an earlier launch is live, unless the graph frees on launch. */
CUresult graph_memory_launch(CUgraphExec exec, CUstream stream);
/* Records the stream and its mark after the nodes were submitted: they show when the launch is done. */
void graph_memory_launched(CUgraphExec exec, CUstream stream);
/* Ends an executable graph's holding. Its live allocations stay until they are freed. */
void graph_memory_destroyed(CUgraphExec exec);
/* Gives back memory that no graph needs which runs, is about to run, or has live allocations. */
void graph_memory_trim(CUdevice device);
/* Frees all memory that graphs hold on a device, after its last context is gone. */
void graph_memory_leave(CUdevice device);
/* A current attribute of a device's pool; NULL if there is no such attribute. */
size_t *graph_memory_figure(CUdevice device, CUgraphMem_attribute attribute);

#endif
