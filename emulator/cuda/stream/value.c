/* Streams that write a word of memory, or wait until a word has a value. By this way alone can work wait
 * on the device for work that has not been launched yet. */
#include "cuda/context/context.h"
#include "cuda/memory/memory.h"
#include "cuda/stream/capture/capture.h"
#include "cuda/stream/queue.h"
#include "cuda/stream/stream.h"
#include "cuda/stream/submit.h"

static bool valid(const CUstreamBatchMemOpParams *operation, unsigned bytes) {
    uint64_t address = operation->waitValue.address;
    return address && address % bytes == 0 && memory_find(address);
}

static CUresult one(CUstream stream, const CUstreamBatchMemOpParams *operation) {
    bool wide = operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    uint64_t bytes = wide ? 8 : 4, value = wide ? operation->waitValue.value64 : operation->waitValue.value;
    uint64_t condition = operation->waitValue.flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
    struct work work = {.data = {{operation->waitValue.address, value, bytes, condition}}};
    switch (operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        work.kind = WORK_UNTIL;
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        work.kind = WORK_STORE;
        break;
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_SUCCESS; /* memory is never out of order here */
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!valid(operation, (unsigned)bytes) || condition > CU_STREAM_WAIT_VALUE_NOR)
        return CUDA_ERROR_INVALID_VALUE;
    return queue_submit(stream, &work);
}

CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned int count, CUstreamBatchMemOpParams *operations,
                               unsigned int flags) {
    CUstream stream;
    if (!operations || !count || count > 256 || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = submit_enter(handle, &stream);
    if (result)
        return result;
    if (stream->capture || capture_meets_legacy(stream)) {
        if (stream->capture)
            capture_invalidate(stream->capture);
        return driver_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = one(stream, &operations[i]);
    return driver_leave(result);
}

/* Defines one kind of operation on one width, under its two names. */
#define VALUES(kind, bits, field, member, operation_kind)                                                    \
    CUresult cuStream##kind##Value##bits##_v2(CUstream stream, CUdeviceptr address, cuuint##bits##_t value,  \
                                              unsigned int flags) {                                          \
        CUstreamBatchMemOpParams operation = {                                                               \
            .field = {.operation = operation_kind, .address = address, .member = value, .flags = flags}};    \
        return cuStreamBatchMemOp_v2(stream, 1, &operation, 0);                                              \
    }                                                                                                        \
    CUresult cuStream##kind##Value##bits(CUstream stream, CUdeviceptr address, cuuint##bits##_t value,       \
                                         unsigned int flags) {                                               \
        return cuStream##kind##Value##bits##_v2(stream, address, value, flags);                              \
    }

VALUES(Wait, 32, waitValue, value, CU_STREAM_MEM_OP_WAIT_VALUE_32)
VALUES(Wait, 64, waitValue, value64, CU_STREAM_MEM_OP_WAIT_VALUE_64)
VALUES(Write, 32, writeValue, value, CU_STREAM_MEM_OP_WRITE_VALUE_32)
VALUES(Write, 64, writeValue, value64, CU_STREAM_MEM_OP_WRITE_VALUE_64)
