#include "book/clock.h"

#include <stdio.h>

int64_t book_clock_shift_ns, book_boot_shift_ns;

/* /proc/self/timens_offsets shows the namespace that children enter, which a process that is not about to
 * make children elsewhere shares. */
void book_clock_find(void) {
    long long monotonic_s, monotonic_ns, boot_s, boot_ns;
    FILE *file = fopen("/proc/self/timens_offsets", "re");
    if (!file)
        return;
    if (fscanf(file, "monotonic %lld %lld boottime %lld %lld", &monotonic_s, &monotonic_ns, &boot_s,
               &boot_ns) == 4) {
        book_clock_shift_ns = monotonic_s * 1000000000 + monotonic_ns;
        book_boot_shift_ns = boot_s * 1000000000 + boot_ns;
    }
    fclose(file);
}
