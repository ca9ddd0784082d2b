/* The checks of _FORTIFY_SOURCE, under the names by which the compiler calls them.
 *
 * glibc has these functions, and musl has not: its loader would start no program with a library that needs
 * them. The library therefore brings its own, and exports none. An overflow ends the program, as it does in
 * glibc: what follows it would run on a damaged stack. */
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

int __open_2(const char *path, int flags);
ssize_t __read_chk(int file, void *buffer, size_t bytes, size_t room);
int __poll_chk(struct pollfd *files, nfds_t count, int timeout_ms, size_t room);
int __vsnprintf_chk(char *text, size_t most, int flag, size_t room, const char *format, va_list values);

int __open_2(const char *path, int flags) {
    if (flags & O_CREAT) /* it would need a mode */
        __builtin_trap();
    return open(path, flags);
}

ssize_t __read_chk(int file, void *buffer, size_t bytes, size_t room) {
    if (bytes > room)
        __builtin_trap();
    return read(file, buffer, bytes);
}

int __poll_chk(struct pollfd *files, nfds_t count, int timeout_ms, size_t room) {
    if (count > room / sizeof *files)
        __builtin_trap();
    return poll(files, count, timeout_ms);
}

__attribute__((format(printf, 5, 0))) int __vsnprintf_chk(char *text, size_t most, int flag, size_t room,
                                                          const char *format, va_list values) {
    (void)flag;
    if (most > room)
        __builtin_trap();
    return vsnprintf(text, most, format, values);
}
