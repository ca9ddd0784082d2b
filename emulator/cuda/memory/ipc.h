/* Handles by which one process finds the memory of another. */
#ifndef PLIMSOLL_EMULATOR_IPC_H
#define PLIMSOLL_EMULATOR_IPC_H

#include "cuda/memory/share.h"

#define IPC_MAGIC 0x0043504953504C50ull

struct ipc_handle {
    uint64_t magic, share_id, offset, size;
    uint64_t claimed_ns; /* claim time of the exporter's slot, which may have another owner by now */
    uint32_t slot;
    int fd;
};

_Static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE, "a handle has no room for more");

/* Fills all fields but the offset. */
void ipc_describe(struct ipc_handle *handle, const struct share *share, uint64_t size);
/* Maps the memory that a handle names, as imported memory of a context. INVALID_VALUE if the exporter is
 * gone. */
CUresult ipc_open(CUcontext context, const struct ipc_handle *handle, CUdeviceptr *address);

#endif
