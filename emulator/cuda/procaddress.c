/* cuGetProcAddress: the symbol that a name means for a given CUDA version and default stream.
 * functions.def and unsupported.def list all symbols. Their types come from NVIDIA's cudaTypedefs.h, so a row
 * with another signature does not compile. */
#include "cuda/driver.h"

#include <cudaTypedefs.h>
#include <string.h>

#define BOTH(name, version, symbol, per_thread_version, suffix)                                              \
    FUNCTION(name, version, symbol)                                                                          \
    PER_THREAD(name, per_thread_version, symbol##suffix, suffix)

#define FUNCTION(name, version, symbol) FUNCTION_OF_TYPE(name, version, symbol, PFN_##name##_v##version)
#define PER_THREAD(name, version, symbol, suffix)                                                            \
    FUNCTION_OF_TYPE(name, version, symbol, PFN_##name##_v##version##suffix)

/* A row whose symbol differs from NVIDIA's type does not compile here. */
#define FUNCTION_OF_TYPE(name, version, symbol, type)                                                        \
    _Static_assert(_Generic(&symbol, type: 1, default: 0), #symbol " is no " #type);
#include "cuda/functions.def"
#include "cuda/unsupported.def"
#undef FUNCTION_OF_TYPE

/* A second address for each row: a jump to its symbol. */
#if defined(__x86_64__)
#define JUMP "jmp "
#elif defined(__aarch64__)
#define JUMP "b "
#else
#error "say how this machine jumps"
#endif
#define JUMP_TO(label, symbol)                                                                               \
    __attribute__((visibility("hidden"))) extern char jump_##label[];                                        \
    __asm__(".pushsection .text\n.globl jump_" #label "\n.hidden jump_" #label "\njump_" #label              \
            ": " JUMP #symbol "\n.popsection\n");

#undef FUNCTION
#undef PER_THREAD
#define FUNCTION(name, version, symbol) JUMP_TO(name##_##version, symbol)
#define PER_THREAD(name, version, symbol, suffix) JUMP_TO(name##_##version##suffix, symbol)
#include "cuda/functions.def"
#include "cuda/unsupported.def"

struct function {
    const char *name;
    int version;
    bool per_thread;
    void *address, *private_address;
};

#undef FUNCTION
#undef PER_THREAD
#define FUNCTION(name, version, symbol) {#name, version, false, (void *)symbol, jump_##name##_##version},
#define PER_THREAD(name, version, symbol, suffix)                                                            \
    {#name, version, true, (void *)symbol, jump_##name##_##version##suffix},

static const struct function functions[] = {
#include "cuda/functions.def"
#include "cuda/unsupported.def"
};

/* The newest row up to a version; NULL if none. *exists is true if any version has the name. */
static const struct function *find(const char *name, int version, bool per_thread, bool *exists) {
    const struct function *best = NULL;
    *exists = false;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        const struct function *function = &functions[i];
        if (strcmp(function->name, name) != 0)
            continue;
        *exists = true;
        if (function->version <= version && (per_thread || !function->per_thread) &&
            (!best || function->per_thread > best->per_thread ||
             (function->per_thread == best->per_thread && function->version > best->version)))
            best = function;
    }
    return best;
}

static CUresult look_up(const char *name, void **address, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status) {
    const cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, exists;
    if (!name || !address || version < 0 || (flags & ~known) || flags == known)
        return CUDA_ERROR_INVALID_VALUE;
    const struct node_file *node = driver_node();
    if (!node)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    int newest = version < node->cuda_version ? version : node->cuda_version;
    const struct function *function = find(name, newest, per_thread, &exists);
    if (function)
        *address = node->has_private_addresses ? function->private_address : function->address;
    else
        *address = NULL;
    *status = function ? CU_GET_PROC_ADDRESS_SUCCESS
              : exists ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **address, int version, cuuint64_t flags) {
    CUdriverProcAddressQueryResult status;
    return look_up(name, address, version, flags, &status);
}

/* A caller that passes `status` finds there that the function does not exist, and gets no error. */
CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    CUdriverProcAddressQueryResult unread;
    CUresult result = look_up(name, address, version, flags, status ? status : &unread);
    return status && result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
}

/* NVIDIA's runtime recognises its driver by private tables, which are not emulated. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
