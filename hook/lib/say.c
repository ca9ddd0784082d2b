#include "say.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "state.h"

/* A reader of standard error that stands still holds the program no longer than this. */
#define READER_MS 1000

/* Whether a line can be written now. A pipe without a reader would end the program by SIGPIPE. */
static bool is_writable(void) {
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&ready, 1, READER_MS) == 1 && ready.revents == POLLOUT;
}

/* Makes one write per line, without stdio: this very thread may hold the lock of stdio, or a fork may have
 * lost it. */
static void write_line(const char *format, va_list arguments) {
    int saved = errno;
    char line[512] = "plimsoll: ";
    const size_t prefix = sizeof("plimsoll: ") - 1;
    int wrote = vsnprintf(line + prefix, sizeof(line) - prefix - 1, format, arguments);
    if (wrote > 0) {
        size_t length = prefix + (size_t)wrote;
        if (length > sizeof(line) - 2)
            length = sizeof(line) - 2;
        line[length] = '\n';
        ssize_t ignored = is_writable() ? write(STDERR_FILENO, line, length + 1) : 0;
        (void)ignored; /* a closed standard error is the program's own choice */
    }
    errno = saved;
}

void plimsoll_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

void plimsoll_note(const char *format, ...) {
    if (!plimsoll.is_verbose)
        return;
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}
