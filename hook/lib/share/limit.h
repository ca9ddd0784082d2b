/* The container's limit while no broker opens and shuts its gate. */
#ifndef PLIMSOLL_LIMIT_H
#define PLIMSOLL_LIMIT_H

#include <stdint.h>

/* Begins to count: the container owes nothing for the time before. */
void plimsoll_limit_begin(uint64_t now_ns);

/* The gate's state by the limit alone: PLIMSOLL_GATE_OPEN without a limit, else _METERED, and _SHUT while the
 * container has had more of a GPU's time than its limit allows. */
uint32_t plimsoll_limit_state(uint64_t now_ns);

#endif
