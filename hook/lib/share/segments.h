/* The ends of segments. Every function needs plimsoll.shares.lock. */
#ifndef PLIMSOLL_SEGMENTS_H
#define PLIMSOLL_SEGMENTS_H

#include "state.h"

/* Ends every segment whose last mark was reached and that nothing follows. */
void plimsoll_close_segments(struct plimsoll_meter *meter);

/* Gives the tails of a meter their mark, if the program waited for work (`is_end_likely`) or the tails should
 * be done. Releases the lock during the driver's call. */
void plimsoll_see_to_tails(struct plimsoll_meter *meter, bool is_end_likely);

#endif
