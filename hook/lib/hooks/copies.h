/* Copies and the container's gate.
 *
 * A copy from device memory to device memory keeps the GPU as busy as a kernel does, so it is a launch. A
 * copy with one end in the host passes the gate, because the engines that move it are not shared by Plimsoll.
 * A copy that the host waits for ends a burst, whatever it moves.
 */
#ifndef PLIMSOLL_COPIES_H
#define PLIMSOLL_COPIES_H

#include "share/launch.h"

/* Whether an address of any kind lies on a device. Calls the driver, so use this only where the gate is shut
 * or metered. */
bool plimsoll_is_on_device(CUdeviceptr address);

/* The same for one end of a box. `address` matters only where the type is unified. */
static inline bool plimsoll_end_is_on_device(CUmemorytype type, CUdeviceptr address) {
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY ||
           (type == CU_MEMORYTYPE_UNIFIED && plimsoll_is_on_device(address));
}

/* The whole hook of a copy in a stream, where only the arguments show whether it is a launch. */
#define PLIMSOLL_COPIES_ASYNC(symbol, is_launch, stream, parameters, arguments)                              \
    PLIMSOLL_GATED(symbol, parameters, arguments) {                                                          \
        struct plimsoll_launch launch;                                                                       \
        if (!(is_launch))                                                                                    \
            return REAL(symbol) arguments;                                                                   \
        plimsoll_enter_launch(&launch, stream);                                                              \
        return plimsoll_leave_launch(&launch, REAL(symbol) arguments);                                       \
    }

/* The whole hook of such a copy for which the host waits. */
#define PLIMSOLL_COPIES(symbol, is_launch, stream, parameters, arguments)                                    \
    PLIMSOLL_GATED(symbol, parameters, arguments) {                                                          \
        struct plimsoll_launch launch;                                                                       \
        CUresult result;                                                                                     \
        if (is_launch) {                                                                                     \
            plimsoll_enter_launch(&launch, stream);                                                          \
            result = plimsoll_leave_launch(&launch, REAL(symbol) arguments);                                 \
        } else {                                                                                             \
            plimsoll_before_sync(stream);                                                                    \
            result = REAL(symbol) arguments;                                                                 \
        }                                                                                                    \
        plimsoll_after_sync();                                                                               \
        return result;                                                                                       \
    }

#endif
