/* The GPU of `limits` on which something lies. */
#ifndef PLIMSOLL_GPUS_H
#define PLIMSOLL_GPUS_H

#include "state.h"

/* An index in `limits`, or one of these. */
#define GPU_NONE (-1)     /* no GPU at all: host memory, no context. The call passes; the driver judges it */
#define GPU_UNLISTED (-2) /* a GPU that is not in `limits`: its line is 0 */

int plimsoll_gpu_of_device(CUdevice device);
/* The driver's number for a GPU of `limits`; -1 where it has none. */
CUdevice plimsoll_device_of_gpu(int gpu);
/* The primary context on a GPU of `limits` while this process holds it, or 0. */
uint64_t plimsoll_primary_of_gpu(int gpu);
/* The GPU of a context that is on the books; GPU_UNLISTED for any other context. */
int plimsoll_gpu_of_known_context(uint64_t context);
/* Whether this context is on the books. */
bool plimsoll_is_known_context(uint64_t context);
/* The device of a context, which need not be the current one. False where the driver does not say. */
bool plimsoll_device_of_context(uint64_t context, CUdevice *device);
/* The context that owns the memory allocated in a context: for a green context its primary one, for any other
 * the context itself. */
uint64_t plimsoll_owner_of(CUcontext context);
/* The context that owns memory allocated now: the current one, or the primary one of a green context; 0 for
 * none. */
uint64_t plimsoll_current_context(void);
/* Whether work on the stream is being recorded instead of executed. */
bool plimsoll_is_capturing(CUstream stream);
/* The stream that a program means in the functions for per-thread default streams. */
CUstream plimsoll_per_thread(CUstream stream);
int plimsoll_gpu_of_location(const CUmemLocation *location);
int plimsoll_gpu_of_uuid_text(const char *uuid);
int plimsoll_gpu_of_handle(nvmlDevice_t device);

#endif
