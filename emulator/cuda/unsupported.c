/* The functions of unsupported.def. None reads its arguments, so this file does without NVIDIA's header,
 * which declares them with their parameters; procaddress.c checks that the header declares each of them. */
enum { ERROR_NOT_SUPPORTED = 801 }; /* CUDA_ERROR_NOT_SUPPORTED */

#define FUNCTION(name, version, symbol)                                                                      \
    __attribute__((visibility("default"))) int symbol(void) {                                                \
        return ERROR_NOT_SUPPORTED;                                                                          \
    }
#define BOTH(name, version, symbol, per_thread_version, suffix)                                              \
    FUNCTION(name, version, symbol)                                                                          \
    FUNCTION(name, per_thread_version, symbol##suffix)
#include "cuda/unsupported.def"
