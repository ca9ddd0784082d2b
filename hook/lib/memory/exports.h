/* Memory that crosses between processes: in whose name it counts, and until when.
 *
 * Memory counts once. It is in its exporter's word as long as the exporter holds it. When the exporter lets
 * go of it or dies, the file `exports` counts it as long as a living process of the container imports it.
 * Memory that no process of this container exported is in the word of its first importer, which is its
 * exporter for the others.
 */
#ifndef PLIMSOLL_EXPORTS_H
#define PLIMSOLL_EXPORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_api.h"
#include "memory/holdings.h"
#include "pages.h"

struct plimsoll_charge;

/* The key of a piece: of the bytes that cross, or of the file whose descriptor crosses. Equal for exporter
 * and importer; 0 for a file that nobody marked. */
uint64_t plimsoll_key_of_bytes(const void *bytes, size_t size);
uint64_t plimsoll_key_of_file(int file);

/* After an export, or the import of memory from outside: enters what this process holds under (kind, name) as
 * a piece, unless it is one already. Where it cannot be entered, an import counts as if it came from outside.
 */
void plimsoll_exported(enum plimsoll_kind kind, uint64_t name, uint64_t key);

/* The same for an export by descriptor, whose file gets a mark if it has no identity of its own. */
void plimsoll_exported_file(enum plimsoll_kind kind, uint64_t name, int file);

/* Before an import: the piece with this key that a process of this container holds now, which this process
 * imports from here on. 0: there is none, so the memory counts in this process's word. */
uint16_t plimsoll_import_begin(uint64_t key);

/* After the end of an import. If it was the last one here of a piece that this process let go of before,
 * returns the bytes to be taken off its word on `gpu`; else 0. */
uint64_t plimsoll_import_end(uint16_t piece, int *gpu);

/* This process lets go of its own piece. False: it imports the piece too, so the charge stays until that
 * import ends. */
bool plimsoll_export_end(uint16_t piece);

/* After a claim: the pieces and imports of the program that this process was before an exec are gone. */
void plimsoll_exports_of_earlier_program(void);

/* --- foreign.c: memory that no process of this container exported, by its handle or its descriptor ---
 */

/* After the import of a handle: reserves the memory behind it. If the size stays unknown, only the smallest
 * size is reserved, and the call waits until NVML's figure for this process counts, which has the rest.
 * CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY, both outside the hook. */
CUresult plimsoll_reserve_foreign(struct plimsoll_charge *charge, CUmemGenericAllocationHandle handle);

/* The bytes behind a descriptor of cuMemExportToShareableHandle; 0 for any other descriptor. */
uint64_t plimsoll_bytes_of_file(int file);

#endif
