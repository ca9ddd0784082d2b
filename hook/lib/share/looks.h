/* Looks: asking the driver which marks were reached, and when. With plimsoll.shares.lock released. */
#ifndef PLIMSOLL_LOOKS_H
#define PLIMSOLL_LOOKS_H

#include "state.h"

/* Brings what is known of one context's work up to now. The caller is one of the meter's users. */
void plimsoll_look_at(struct plimsoll_meter *meter);

/* The same of all contexts. `is_end_likely`: the program waited for something, or launches nothing more, so
 * that tails get their marks. */
void plimsoll_look(bool is_end_likely);

#endif
