/* Identities of control groups: the inode number of a cgroup's directory, which Linux gives to no second
 * group. Only version 2 counts, because NVIDIA's driver knows no other. */
#ifndef PLIMSOLL_EMULATOR_BOOK_CGROUP_H
#define PLIMSOLL_EMULATOR_BOOK_CGROUP_H

#include <stdbool.h>

#include "book/state.h"

/* Fills in this process's own group and the groups above it, the own one first, as far as this process sees
 * them: a container sees no group above its own. Unused places are 0; all are 0 without a mounted cgroup2
 * file system. */
void cgroup_own(uint64_t groups[BOOK_CGROUP_DEPTH]);
/* The identity of the group with this directory; 0 if there is no such directory. `is_group` is set to false
 * for a directory that is no control group of version 2. */
uint64_t cgroup_of(const char *path, bool *is_group);

#endif
