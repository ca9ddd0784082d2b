/* What the broker cannot see in the slot: that a launch waits, and that a process is drained or idle. */
#ifndef PLIMSOLL_REPORTS_H
#define PLIMSOLL_REPORTS_H

#include <stdbool.h>
#include <stdint.h>

/* Tells where this process stands with the gate, under the word that the caller obeys. False where no broker
 * takes it. Never blocks for long, leaves errno alone. */
bool plimsoll_report(uint32_t word);

/* Whether nothing was ever reported by this process, or nothing that a broker took. */
bool plimsoll_report_is_missing(void);

/* Whether the latest report found no broker. */
bool plimsoll_report_is_owed(void);

/* Whether what was reported is known, over the connection that stands, or over a new one that has just been
 * made and brought it anew. True where none was ever needed. */
bool plimsoll_report_stands(void);

/* In the child of a fork: the connection is the parent's. */
void plimsoll_report_forget(void);

#endif
