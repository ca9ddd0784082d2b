/* The ways by which programs find functions: dlsym, dlvsym, cuGetProcAddress.
 *
 * CUDA's runtime, static or shared, opens libcuda, looks up cuGetProcAddress with dlsym, and finds the rest
 * with that function. CUDA 11.3 was the first to do so, 12.0 brought `_v2`. Programs that link libcuda get
 * the exported wrappers.
 *
 * This dlsym answers only where the genuine look-up succeeds, and gives a wrapper only for the driver's own
 * function. Another library's function of the same name stays that library's. Every other look-up is passed
 * on by a jump, not a call. RTLD_NEXT and RTLD_DEFAULT are relative to the caller, which glibc finds by the
 * return address, and a call from here would make this library the caller.
 */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "broker/broker.h"
#include "driver/driver.h"
#include "driver/routing.h"

/* The result of the C side of the assembly entry points below, in two registers: the answer, or the function
 * to continue with, with the caller's own arguments. */
struct plimsoll_route {
    void *value;
    uintptr_t is_answer;
};

struct plimsoll_route plimsoll_route_dlsym(void *handle, const char *name, const char *unused,
                                           const void *caller);
struct plimsoll_route plimsoll_route_dlvsym(void *handle, const char *name, const char *version,
                                            const void *caller);

static void *as_object(plimsoll_function function) {
    void *object;
    memcpy(&object, &function, sizeof(object));
    return object;
}

static plimsoll_function as_function(void *object) {
    plimsoll_function function;
    memcpy(&function, &object, sizeof(function));
    return function;
}

/* The wrapper, if `found` is the driver's function or, through the global scope, the wrapper itself. In the
 * second case only where the driver is loaded, so that a missing driver stays missing.
 *
 * A driver may have several files, of which one passes calls on to another (see routing.c). A second driver
 * in the process, from another folder or in a namespace of its own (dlmopen), is not the one that the
 * wrappers call. Mixing the two would break the program, so the function passes through, and is reported.
 */
static void *hooked(enum plimsoll_index hook, void *found) {
    if (!found)
        return NULL;
    bool is_resolved = plimsoll_resolve_around(plimsoll_library_of(hook), found) && plimsoll.driver[hook];
    plimsoll_function wrapper = plimsoll_wrapper(hook);
    if (as_function(found) == wrapper && !is_resolved)
        return plimsoll.loader.dlsym(RTLD_NEXT, plimsoll_hook_name(hook)); /* fails, and sets dlerror */
    if (is_resolved && plimsoll_wrapper_of(as_function(found)))
        return as_object(wrapper);
    if (!plimsoll_is_in_driver_file(plimsoll_library_of(hook), found))
        return found;
    if (is_resolved && plimsoll_library_of(hook) == LIBRARY_CUDA && plimsoll_leads_to_driver(found))
        return as_object(wrapper);
    plimsoll_tell_unknown(plimsoll_hook_name(hook));
    return found;
}

/* For RTLD_DEFAULT and RTLD_NEXT the genuine look-up is made from here, behind this library. It finds what a
 * program without the preload would find, except in scopes private to the caller. For those, the look-up uses
 * the driver itself: if the driver is loaded at all, the program means it. */
static void *found_by(enum plimsoll_index hook, void *handle) {
    if (handle != RTLD_DEFAULT && handle != RTLD_NEXT)
        return plimsoll.loader.dlsym(handle, plimsoll_hook_name(hook));
    if (plimsoll_resolve(plimsoll_library_of(hook)) && plimsoll.driver[hook])
        return as_object(plimsoll.driver[hook]);
    return plimsoll.loader.dlsym(RTLD_NEXT, plimsoll_hook_name(hook));
}

static enum plimsoll_index hook_asked_for(const char *name) {
    enum plimsoll_index hook = name ? plimsoll_hook_named(name) : HOOK_END;
    if (name && hook == HOOK_END && plimsoll_is_unclassified(name) && plimsoll_driver_has(LIBRARY_CUDA, name))
        plimsoll_tell_unknown(name);
    return hook;
}

/* A driver in several files finds the functions of its own files by these look-ups. With a wrapper in their
 * place, the driver would call itself for ever. */
static void *answer(enum plimsoll_index hook, void *found, const void *caller) {
    bool is_drivers =
        plimsoll_is_in_driver_file(LIBRARY_CUDA, caller) || plimsoll_is_in_driver_file(LIBRARY_NVML, caller);
    return is_drivers ? found : hooked(hook, found);
}

struct plimsoll_route plimsoll_route_dlsym(void *handle, const char *name, const char *unused,
                                           const void *caller) {
    (void)unused; /* dlsym has no version; the entry points pass the same registers */
    if (!plimsoll_resolve_loader())
        return (struct plimsoll_route){NULL, 1};
    enum plimsoll_index hook = hook_asked_for(name);
    if (hook == HOOK_END)
        return (struct plimsoll_route){plimsoll.next_dlsym, 0};
    return (struct plimsoll_route){answer(hook, found_by(hook, handle), caller), 1};
}

/* Whether a library was loaded before this one, and so is in front of it for RTLD_NEXT. */
static bool comes_before_us(const void *code) {
    Dl_info about;
    void *map = NULL, *ours = NULL;
    if (!plimsoll.loader.dladdr1(code, &about, &map, RTLD_DL_LINKMAP) ||
        !plimsoll.loader.dladdr1(&plimsoll, &about, &ours, RTLD_DL_LINKMAP))
        return false;
    for (const struct link_map *at = map; at; at = at->l_next)
        if (at == ours)
            return true;
    return false;
}

/* A preload in front of this one that hooks dlsym too finds the next one with dlvsym and glibc's version.
 * This library's dlsym has no version, because the right version differs by glibc. So the loader would step
 * over it, and with it over the limits. A preload behind this one must not be sent back here: that would be a
 * circle. */
static void *look_up_behind(void *handle, const char *name, const void *caller) {
    if (handle != RTLD_NEXT || !name || !comes_before_us(caller))
        return NULL;
    void *ours = NULL;
    plimsoll_function entry = strcmp(name, "dlsym") == 0    ? (plimsoll_function)dlsym
                              : strcmp(name, "dlvsym") == 0 ? (plimsoll_function)dlvsym
                                                            : NULL;
    memcpy(&ours, &entry, sizeof(ours));
    return ours;
}

/* The driver's functions carry no version, so a versioned look-up of a driver's function is rare, and its
 * scope plain. */
struct plimsoll_route plimsoll_route_dlvsym(void *handle, const char *name, const char *version,
                                            const void *caller) {
    if (!plimsoll_resolve_loader())
        return (struct plimsoll_route){NULL, 1};
    void *ours = look_up_behind(handle, name, caller);
    if (ours)
        return (struct plimsoll_route){ours, 1};
    enum plimsoll_index hook = hook_asked_for(name);
    if (hook == HOOK_END)
        return (struct plimsoll_route){plimsoll.next_dlvsym, 0};
    return (struct plimsoll_route){answer(hook, plimsoll.loader.dlvsym(handle, name, version), caller), 1};
}

/* Saves the arguments, calls the C side, and returns its answer or jumps on with all registers as they
 * came. */
#if defined(__x86_64__)
#define ENTRY(symbol)                                                                                        \
    __asm__(".text\n.globl " #symbol "\n.type " #symbol ",@function\n" #symbol ":\n"                         \
            ".cfi_startproc\n"                                                                               \
            "endbr64\n"                                                                                      \
            "pushq %rdi\n.cfi_adjust_cfa_offset 8\n"                                                         \
            "pushq %rsi\n.cfi_adjust_cfa_offset 8\n"                                                         \
            "pushq %rdx\n.cfi_adjust_cfa_offset 8\n" /* three words: the stack is aligned again */           \
            "movq 24(%rsp), %rcx\n"                  /* the caller's address */                              \
            "call plimsoll_route_" #symbol "\n"                                                              \
            "movq %rdx, %rcx\n"                                                                              \
            "popq %rdx\n.cfi_adjust_cfa_offset -8\n"                                                         \
            "popq %rsi\n.cfi_adjust_cfa_offset -8\n"                                                         \
            "popq %rdi\n.cfi_adjust_cfa_offset -8\n"                                                         \
            "testq %rcx, %rcx\njnz 1f\njmp *%rax\n1: ret\n"                                                  \
            ".cfi_endproc\n.size " #symbol ", .-" #symbol "\n");
#elif defined(__aarch64__)
#define ENTRY(symbol)                                                                                        \
    __asm__(".text\n.globl " #symbol "\n.type " #symbol ",%function\n" #symbol ":\n"                         \
            ".cfi_startproc\n"                                                                               \
            "hint #34\n" /* bti c */                                                                         \
            "stp x29, x30, [sp, #-48]!\n.cfi_def_cfa_offset 48\n"                                            \
            ".cfi_offset x29, -48\n.cfi_offset x30, -40\n"                                                   \
            "mov x29, sp\nstp x0, x1, [sp, #16]\nstr x2, [sp, #32]\n"                                        \
            "mov x3, x30\n"                                                                                  \
            "bl plimsoll_route_" #symbol "\n"                                                                \
            "mov x16, x0\nmov x17, x1\n"                                                                     \
            "ldp x0, x1, [sp, #16]\nldr x2, [sp, #32]\nldp x29, x30, [sp], #48\n"                            \
            ".cfi_def_cfa_offset 0\n.cfi_restore x29\n.cfi_restore x30\n"                                    \
            "cbnz x17, 1f\nbr x16\n1: mov x0, x16\nret\n"                                                    \
            ".cfi_endproc\n.size " #symbol ", .-" #symbol "\n");
#else
#error "Plimsoll's preload library supports x86-64 and aarch64"
#endif

ENTRY(dlsym)
ENTRY(dlvsym)

/* A function without a wrapper goes to the program unchanged, and is reported if it is not classified. */
static void substitute(const char *symbol, void **function, int version, cuuint64_t flags) {
    if (!symbol || !function || !*function)
        return;
    plimsoll_function wrapper = plimsoll_wrapper_for(symbol, as_function(*function), version, flags);
    if (wrapper)
        *function = as_object(wrapper);
    else if (plimsoll_is_unknown_function(symbol, as_function(*function)))
        plimsoll_tell_unknown(symbol);
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    CUresult result = REAL(cuGetProcAddress)(symbol, pfn, cudaVersion, flags);
    if (result == CUDA_SUCCESS)
        substitute(symbol, pfn, cudaVersion, flags);
    return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus) {
    CUresult result = REAL(cuGetProcAddress_v2)(symbol, pfn, cudaVersion, flags, symbolStatus);
    if (result == CUDA_SUCCESS)
        substitute(symbol, pfn, cudaVersion, flags);
    return result;
}
