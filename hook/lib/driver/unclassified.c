/* The names of hooks.h and passes.txt, in one sorted list made by classify.py. The list is searched by
 * halves, because CUDA's runtime looks up hundreds of functions when it starts. */
#include "driver/unclassified.h"

#include <stdlib.h>
#include <string.h>

static const char known[][64] = {
#include "known_names.h"
};

static int compare(const void *name, const void *row) {
    return strcmp(name, row);
}

bool plimsoll_is_unclassified(const char *name) {
    bool is_drivers = name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
    return is_drivers && !bsearch(name, known, sizeof(known) / sizeof(known[0]), sizeof(known[0]), compare);
}
