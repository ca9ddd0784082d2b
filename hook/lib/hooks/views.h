/* Who answers a question about GPUs that NVML was asked. */
#ifndef PLIMSOLL_VIEWS_H
#define PLIMSOLL_VIEWS_H

#include "state.h"

enum plimsoll_teller {
    TELLER_DRIVER,  /* not under Plimsoll, or the container owns its GPUs, or another hook is asking */
    TELLER_NOBODY,  /* the container's limits are not there yet: NVML_ERROR_NOT_READY */
    TELLER_LIBRARY, /* by the container's own limits and counts, which are mapped */
};

enum plimsoll_teller plimsoll_teller(void);

#endif
