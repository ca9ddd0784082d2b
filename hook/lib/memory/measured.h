/* NVML's figures for each process of the container, as the broker writes them into the file `measured`. */
#ifndef PLIMSOLL_MEASURED_H
#define PLIMSOLL_MEASURED_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger.h"

/* The bytes that NVML shows of the container on a GPU past its words: the excess of `limits`, less the part
 * of the processes in `dead`, because the excess of a process ends with its death. `dead` NULL: of all. */
uint64_t plimsoll_excess(unsigned gpu, const struct plimsoll_dead *dead);

/* After the driver made a context that nothing was charged for, and before the broker hears of it; and after
 * the import of memory of unknown size. */
void plimsoll_measurement_due(unsigned gpu);

/* Waits until NVML's figure for this process, with all memory that nothing was charged for, counts against
 * the line. Gives up after 10 s, once and with a line on standard error. Costs one load otherwise. */
void plimsoll_await_measurement(unsigned gpu);

#endif
