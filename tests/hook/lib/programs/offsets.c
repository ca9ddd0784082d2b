/* Prints size and offsets of the shared structures, which the test lists in fields.h. */
#include <stddef.h>
#include <stdio.h>

#include "pages.h"

#define STRUCTURE(structure) printf(#structure " %zu\n", sizeof(struct structure));
#define FIELD(structure, field)                                                                              \
    printf(#field " %zu %zu\n", offsetof(struct structure, field), sizeof(((struct structure *)0)->field));

int main(void) {
#include "fields.h"
    return 0;
}
