/* The wrapper is chosen by the export at the answered address, else by the requested name.
 *
 * The driver chose a variant by version and flags, and the hook of exactly that export is the right one,
 * `_ptsz` and all. The export may lie in another file: WSL2's libcuda.so.1 is a loader that passes every call
 * to the driver's own libcuda.so.1.1, and its look-up answers with functions of that file. The loader's
 * function of the same name does the same. A driver may also answer with an address that has no name. The
 * request then shows which arguments the caller will pass, and so which wrapper it needs. That wrapper calls
 * the exported function, which does the same. An export that is no variant known here takes arguments that
 * are not known either, and passes.
 */
#include "driver/routing.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "variants.h"

struct variant {
    const char *name;
    int version; /* from which `name` means it */
    bool is_per_thread;
    const char *symbol;
};

/* The variants of one name stand together: first those for the common default stream, oldest first, then
 * those for each thread's own. */
static const struct variant variants[] = {VARIANTS};

/* The export at exactly this address; NULL for none. */
static const char *export_at(plimsoll_function function) {
    Dl_info about;
    void *address;
    memcpy(&address, &function, sizeof(address));
    bool is_export = plimsoll.loader.dladdr(address, &about) && about.dli_sname && about.dli_saddr == address;
    return is_export ? about.dli_sname : NULL;
}

/* Chooses as the driver does: the newest variant up to the version, with each thread's own default stream if
 * that is requested and exists. Sets `count` to the number of variants that the name has for one kind of
 * stream. */
static const struct variant *choose(const char *name, int version, cuuint64_t flags, unsigned *count) {
    bool wants_per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct variant *best = NULL;
    *count = 0;
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        const struct variant *each = &variants[i];
        if (strcmp(each->name, name) != 0)
            continue;
        *count += !each->is_per_thread;
        if (each->version <= version && (wants_per_thread || !each->is_per_thread))
            best = each;
    }
    return best;
}

/* A version past those known here may mean an unknown variant. The driver then exports that variant too. */
static bool may_be_newer(const char *name, int version, unsigned count) {
    char next[80];
    snprintf(next, sizeof(next), "%s_v%u", name, count + 1);
    return version > NEWEST_KNOWN && plimsoll_driver_has(LIBRARY_CUDA, next);
}

static int driver_version(void) {
    int version = 0;
    return CALLED(cuDriverGetVersion)(&version) == CUDA_SUCCESS ? version : 0;
}

/* A driver has no variants newer than itself, whatever version is requested. */
static plimsoll_function wrapper_by_name(const char *name, int version, cuuint64_t flags) {
    unsigned count;
    int own = driver_version();
    const struct variant *meant = choose(name, version < own ? version : own, flags, &count);
    enum plimsoll_index hook = meant ? plimsoll_hook_named(meant->symbol) : HOOK_END;
    bool is_there = hook != HOOK_END && plimsoll.driver[hook];
    return is_there && !may_be_newer(name, version, count) ? plimsoll_wrapper(hook) : NULL;
}

static plimsoll_function wrapper_of_export(const char *export) {
    enum plimsoll_index hook = plimsoll_hook_named(export);
    return hook != HOOK_END && plimsoll.driver[hook] ? plimsoll_wrapper(hook) : NULL;
}

/* The loader is queried last: it searches all of the driver's symbols, and the runtime looks up hundreds of
 * functions. `cuInit` has had one form since CUDA's first release, and it is the place where a driver is
 * refused. */
plimsoll_function plimsoll_wrapper_for(const char *name, plimsoll_function found, int version,
                                       cuuint64_t flags) {
    plimsoll_function wrapper = plimsoll_wrapper_of(found);
    if (wrapper)
        return wrapper;
    unsigned count;
    choose(name, version, flags, &count);
    const char *export = count > 0 && strcmp(name, "cuInit") != 0 ? export_at(found) : NULL;
    return export ? wrapper_of_export(export) : wrapper_by_name(name, version, flags);
}

bool plimsoll_is_unknown_function(const char *name, plimsoll_function found) {
    unsigned count;
    choose(name, 0, 0, &count);
    const char *export = count > 0 ? export_at(found) : NULL;
    return export ? plimsoll_is_unclassified(export) : count > 0 || plimsoll_is_unclassified(name);
}

/* The driver's answer to a program of its own version; NULL where the driver has no look-up, or no answer. */
static plimsoll_function answered(const char *name, int version) {
    void *found = NULL;
    plimsoll_function function;
    CUdriverProcAddressQueryResult status;
    if (plimsoll.driver[HOOK_cuGetProcAddress_v2])
        REAL(cuGetProcAddress_v2)(name, &found, version, 0, &status);
    else if (plimsoll.driver[HOOK_cuGetProcAddress])
        REAL(cuGetProcAddress)(name, &found, version, 0);
    memcpy(&function, &found, sizeof(function));
    return function;
}

static const void *object_of(const void *address) {
    Dl_info about;
    return plimsoll.loader.dladdr(address, &about) ? about.dli_fbase : NULL;
}

/* The address of a name in the file that holds `function`; NULL where that file lacks the name. */
static void *answered_there(const void *function, const char *name, int version) {
    Dl_info about;
    void *handle, *ask = NULL, *found = NULL;
    CUdriverProcAddressQueryResult status;
    __typeof__(&cuGetProcAddress_v2) ask_v2;
    if (!plimsoll.loader.dladdr(function, &about) ||
        !(handle = plimsoll.loader.dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) ||
        !(ask = plimsoll.loader.dlsym(handle, "cuGetProcAddress_v2")))
        return NULL;
    memcpy(&ask_v2, &ask, sizeof(ask_v2));
    return ask_v2(name, &found, version, 0, &status) == CUDA_SUCCESS ? found : NULL;
}

bool plimsoll_leads_to_driver(const void *function) {
    const char *probe = "cuDriverGetVersion";
    int version = driver_version();
    plimsoll_function answer = answered(probe, version);
    const void *behind;
    memcpy(&behind, &answer, sizeof(behind));
    return behind &&
           (object_of(behind) == object_of(function) || answered_there(function, probe, version) == behind);
}

static bool is_memory_routed(void) {
    int version = driver_version();
    plimsoll_function found = answered("cuMemAlloc", version);
    if (plimsoll.driver[HOOK_cuMemAlloc_v2] &&
        (!found || plimsoll_wrapper_for("cuMemAlloc", found, version, 0)))
        return true;
    plimsoll_fail(
        "refusing the GPU, as %s of this node's driver (CUDA %d.%d) cannot be held to the memory limit: "
        "update Plimsoll on this node, or install a driver of CUDA %d.%d",
        plimsoll.driver[HOOK_cuMemAlloc_v2] ? "what cuGetProcAddress answers for cuMemAlloc"
                                            : "the missing cuMemAlloc_v2",
        version / 1000, version % 1000 / 10, NEWEST_KNOWN / 1000, NEWEST_KNOWN % 1000 / 10);
    return false;
}

/* After a good answer the driver is not queried again. In a forked child it may hold a lock for ever that a
 * thread of the parent had, and only the driver's own `cuInit` refuses the child before it needs that lock.
 */
bool plimsoll_is_memory_routed(void) {
    if (!__atomic_load_n(&plimsoll.is_memory_routed, __ATOMIC_ACQUIRE))
        __atomic_store_n(&plimsoll.is_memory_routed, is_memory_routed(), __ATOMIC_RELEASE);
    return __atomic_load_n(&plimsoll.is_memory_routed, __ATOMIC_ACQUIRE);
}

/* --- functions that nobody has classified yet ----------------------------------------------------------
 *
 * The names of hooks.h and passes.txt, in one sorted list made by classify.py. The list is searched by
 * halves, because CUDA's runtime looks up hundreds of functions when it starts.
 */

static const char known[][64] = {
#include "known_names.h"
};

static int compare_names(const void *name, const void *row) {
    return strcmp(name, row);
}

bool plimsoll_is_unclassified(const char *name) {
    bool is_drivers = name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
    return is_drivers &&
           !bsearch(name, known, sizeof(known) / sizeof(known[0]), sizeof(known[0]), compare_names);
}
