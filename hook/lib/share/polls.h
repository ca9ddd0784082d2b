/* Polls: queries to the driver about which marks were reached, and when. Call them without
 * plimsoll.shares.lock. */
#ifndef PLIMSOLL_POLLS_H
#define PLIMSOLL_POLLS_H

#include "state.h"

/* Polls the marks of one context. The caller is one of the meter's users. */
void plimsoll_poll_meter(struct plimsoll_meter *meter);

/* Polls the marks of all contexts. `is_end_likely`: the program waited for work or launches nothing more, so
 * tails get their marks. */
void plimsoll_poll(bool is_end_likely);

#endif
