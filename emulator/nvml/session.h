/* The first checks of every NVML call: whether the library is initialised, and which GPU a handle means.
 *
 * Invariants: an output is written only when the call succeeds (or, for a needed count, where NVML's
 * header says so). Every exported signature is the real nvml.h's, since each file includes that header
 * from here. The header's declarations are the export list; all other functions stay hidden. */
#ifndef PLIMSOLL_EMULATOR_NVML_SESSION_H
#define PLIMSOLL_EMULATOR_NVML_SESSION_H

/* Without this the header renames nvmlInit to nvmlInit_v2 and so on, and the old names go undeclared. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include "book/book.h"
#include "book/view.h"

/* The emulated node and its book. Valid once nvmlInit succeeded. */
const struct node_file *nvml_node(void);
struct book *nvml_book(void);

/* True if nvmlInit was called more often than nvmlShutdown. */
bool nvml_is_initialized(void);

nvmlDevice_t nvml_handle_of(int index);

/* Finds a card's index. UNINITIALIZED; INVALID_ARGUMENT for an invalid handle or a NULL `output`;
 * NOT_SUPPORTED for a MIG instance, as from most of NVML's calls. Finds a lost GPU too: for constant values,
 * such as the PCI address. */
nvmlReturn_t nvml_find_gpu(nvmlDevice_t device, const void *output, int *index);

/* The same for the calls that know MIG instances: the index of a card or of an instance. */
nvmlReturn_t nvml_find_place(nvmlDevice_t device, const void *output, int *index);

/* Find the description in the node file, as the two functions above find the index. */
nvmlReturn_t nvml_find_description(nvmlDevice_t device, const void *output, const struct node_gpu **gpu);
nvmlReturn_t nvml_find_place_description(nvmlDevice_t device, const void *output,
                                         const struct node_gpu **gpu);

/* Does the same as nvml_find_gpu, but returns GPU_IS_LOST for a GPU that fell off the bus, and suffers the
 * fault that a test asked for (`book fail`, `book slow`): for measured values. `function` is the exported
 * function, by whose name a test selects it. The second function takes MIG instances too. */
nvmlReturn_t nvml_find_present_gpu_for(const char *function, nvmlDevice_t device, const void *output,
                                       int *index);
nvmlReturn_t nvml_find_present_place_for(const char *function, nvmlDevice_t device, const void *output,
                                         int *index);
#define nvml_find_present_place(device, output, index)                                                       \
    nvml_find_present_place_for(__func__, device, output, index)
#define nvml_find_present_gpu(device, output, index)                                                         \
    nvml_find_present_gpu_for(__func__, device, output, index)

/* The instance's numbers on its card; 0xffffffff for a whole card. Each GPU instance has one compute
 * instance, which is as large. */
unsigned nvml_gpu_instance_id(unsigned index);
unsigned nvml_compute_instance_id(unsigned index);

/* Copies text into the caller's buffer of `length` bytes; INSUFFICIENT_SIZE leaves the buffer alone. */
nvmlReturn_t nvml_give_text(const char *text, char *buffer, unsigned length);

/* NVML stamps samples with the wall clock in microseconds, the book with CLOCK_MONOTONIC in nanoseconds.
 * Both directions use one offset, taken at the first init, so that a returned stamp finds its own sample
 * again. */
unsigned long long nvml_stamp_us(uint64_t monotonic_ns);
uint64_t nvml_unstamp_ns(unsigned long long stamp_us);

/* The GPU's utilisation over the last full sample period, in percent. */
unsigned nvml_busy_pct(int gpu);

void nvml_fill_pci(const struct node_gpu *gpu, nvmlPciInfo_t *pci);

#endif
