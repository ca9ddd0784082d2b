#include "memory/ledger.h"

#include <stdlib.h>

#include "broker/broker.h"
#include "driver/gpus.h"
#include "say.h"
#include "state.h"

/* Without this line, the program's own error names a lack of memory on an idle GPU. */
static void warn_of_unlisted(const char *function) {
    if (__atomic_exchange_n(&plimsoll.is_unlisted_said, true, __ATOMIC_RELAXED))
        return;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    plimsoll_fail(
        "%s was refused on a GPU that this container was not given (CUDA_VISIBLE_DEVICES is %.100s): "
        "use %s, by its UUID",
        function, visible ? visible : "not set", plimsoll.gpus[0].uuid);
}

void plimsoll_count_denial(int gpu, uint64_t bytes, const char *function) {
    __atomic_fetch_add(&plimsoll.counts->slots[plimsoll.slot].denied_count, 1, __ATOMIC_RELAXED);
    if (gpu == GPU_UNLISTED) {
        warn_of_unlisted(function);
        return;
    }
    uint64_t used = plimsoll_used((unsigned)gpu);
    uint64_t line_bytes = __atomic_load_n(&plimsoll.gpus[gpu].line_bytes, __ATOMIC_RELAXED);
    plimsoll_note("%s refused %llu bytes: %llu of %llu in use on %s", function, (unsigned long long)bytes,
                  (unsigned long long)used, (unsigned long long)line_bytes, plimsoll.gpus[gpu].uuid);
    plimsoll_tell_denied((unsigned)gpu, bytes, used, line_bytes, function);
}

bool plimsoll_admit_unlisted(uint64_t bytes, const char *function) {
    bool is_whole = plimsoll_is_whole();
    if (!is_whole)
        plimsoll_count_denial(GPU_UNLISTED, bytes, function);
    return is_whole;
}

void plimsoll_uncharge(int gpu, uint64_t bytes) {
    if (gpu >= 0 && bytes > 0)
        plimsoll_ledger_give_back(plimsoll.counts, plimsoll.slot, (unsigned)gpu, bytes);
}

void plimsoll_uncharge_and_tell(int gpu, uint64_t bytes) {
    plimsoll_uncharge(gpu, bytes);
    if (gpu >= 0 && bytes > 0)
        plimsoll_tell_freed((unsigned)gpu, bytes);
}
