/* Which stream captures are under way in this process, and the one short question that must never meet one.
 *
 * What a context has been given while its gate was open is asked of the driver by recording an event in the
 * whole context (cuCtxRecordEvent). That breaks every capture under way there. So who asks looks here first,
 * and a capture that begins meanwhile waits for the answer, a microsecond: each of the two raises its own
 * flag before it reads the other's (Dekker), and who asks is the one to give way.
 */
#ifndef PLIMSOLL_CAPTURES_H
#define PLIMSOLL_CAPTURES_H

#include <stdbool.h>

/* Whether a capture is under way, or about to be, in any context. */
bool plimsoll_captures_under_way(void);

/* True: until plimsoll_end_look no capture begins, so be short and call the driver once. False: one is under
 * way, and nothing must be asked. */
bool plimsoll_begin_look(void);
void plimsoll_end_look(void);

/* A capture ended with its stream or context. */
void plimsoll_capture_gone(void);

/* In a forked child, where the parent's captures are nobody's. */
void plimsoll_captures_reset(void);

#endif
