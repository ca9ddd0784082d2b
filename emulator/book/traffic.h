/* Memory traffic: the parts of a process's queue in which device memory is read or written. NVML's memory
 * utilisation is the time with traffic, however much of the bandwidth is used. Copies and fills have traffic
 * all the time. The kernels of the emulator only take time, so they have none. Pure bookkeeping; the caller
 * holds the GPU's clock_lock. */
#ifndef PLIMSOLL_EMULATOR_TRAFFIC_H
#define PLIMSOLL_EMULATOR_TRAFFIC_H

#include "book/state.h"

/* Notes traffic that begins once the queue has run for `begin_ns`. If too many stretches wait, the traffic
 * counts directly after the one before it, so the sum stays right. */
void traffic_issue(struct book_share *share, uint64_t begin_ns, uint64_t length_ns);
/* The traffic between two run times of the queue; each stretch of run time is asked for once, in order. */
uint64_t traffic_run(struct book_share *share, uint64_t from_ns, uint64_t to_ns);
/* Forgets the traffic of unfinished work. */
void traffic_drop(struct book_share *share);

#endif
