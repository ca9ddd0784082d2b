/* The source of an answer to a program's question to NVML. */
#ifndef PLIMSOLL_VIEWS_H
#define PLIMSOLL_VIEWS_H

#include "state.h"

enum plimsoll_source {
    SOURCE_DRIVER,  /* not under Plimsoll, or the container owns its GPUs, or another hook is calling */
    SOURCE_NONE,    /* the container's limits do not exist yet: NVML_ERROR_NOT_READY */
    SOURCE_LIBRARY, /* the container's own limits and counts, which are mapped */
};

enum plimsoll_source plimsoll_view_source(void);

#endif
