/* What every NVML call needs first: is the library initialised, and which GPU does this handle mean?
 *
 * What always holds: an output is written only when the call succeeds (or, for a needed count, where NVML's
 * header says so), and every exported signature is the real nvml.h's, since each file includes it from here.
 * The header's declarations are the export list: what it does not declare stays hidden. */
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

/* Whether nvmlInit was called more often than nvmlShutdown. */
bool nvml_is_initialized(void);

nvmlDevice_t nvml_handle_of(int index);

/* SUCCESS and the GPU's index; UNINITIALIZED; INVALID_ARGUMENT for a handle that is none, or `output` NULL.
 * Answers for a lost GPU too: for what does not change, such as its name. */
nvmlReturn_t nvml_find_gpu(nvmlDevice_t device, const void *output, int *index);

/* The same, giving the GPU's line in the node file. */
nvmlReturn_t nvml_find_description(nvmlDevice_t device, const void *output, const struct node_gpu **gpu);

/* The same as nvml_find_gpu, and GPU_IS_LOST for a GPU that fell off the bus: for what must be measured. */
nvmlReturn_t nvml_find_present_gpu(nvmlDevice_t device, const void *output, int *index);

/* Copies text into the caller's buffer of `length` bytes; INSUFFICIENT_SIZE leaves the buffer alone. */
nvmlReturn_t nvml_give_text(const char *text, char *buffer, unsigned length);

/* NVML stamps samples with the wall clock in microseconds, the book with CLOCK_MONOTONIC in nanoseconds. One
 * offset, taken at the first init, serves both ways, so that a stamp given out finds its own sample again. */
unsigned long long nvml_stamp_us(uint64_t monotonic_ns);
uint64_t nvml_unstamp_ns(unsigned long long stamp_us);

/* How busy the GPU was over the last full sample period, in percent. */
unsigned nvml_busy_pct(int gpu);

void nvml_fill_pci(const struct node_gpu *gpu, nvmlPciInfo_t *pci);

#endif
