/* Declarations that the parts of `books` share. */
#ifndef BOOKS_H
#define BOOKS_H

#include "memory/holdings.h"

#include <stdio.h>
#include <unistd.h>

#define CHECK(claim)                                                                                         \
    do {                                                                                                     \
        if (!(claim)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #claim);                                      \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* Memory at that address. */
struct plimsoll_holding holding_of(uint64_t key, uint64_t bytes);

/* The map of holdings by itself; returns the exit code. */
int run_map(void);

#endif
