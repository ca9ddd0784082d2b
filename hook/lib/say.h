/* The library's only output: lines on standard error that begin with "plimsoll:". Keeps errno. */
#ifndef PLIMSOLL_SAY_H
#define PLIMSOLL_SAY_H

/* A failure that the user must see. */
void plimsoll_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A remark; silent unless PLIMSOLL_LOG is set. */
void plimsoll_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
