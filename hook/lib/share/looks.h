/* Polls: queries to the driver about which marks were reached, and when. Call them without
 * plimsoll.shares.lock. */
#ifndef PLIMSOLL_LOOKS_H
#define PLIMSOLL_LOOKS_H

#include "state.h"

/* Polls the marks of one context. The caller is one of the meter's users. */
void plimsoll_look_at(struct plimsoll_meter *meter);

/* Polls the marks of all contexts. `is_end_likely`: the program waited for work or launches nothing more, so
 * tails get their marks. */
void plimsoll_look(bool is_end_likely);

#endif
