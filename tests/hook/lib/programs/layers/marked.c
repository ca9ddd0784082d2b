/* Calls `marker` wherever the global scope has it first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    void (*marker)(void) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "marker");
    memcpy(&marker, &found, sizeof(marker));
    if (marker)
        marker();
    return marker == NULL;
}
