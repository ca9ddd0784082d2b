/* Dates the marks that a poll found reached, and learns from them. */
#ifndef PLIMSOLL_DATING_H
#define PLIMSOLL_DATING_H

#include "state.h"

/* Takes in the results of a meter's poll: dates the reached marks, removes them, and updates the bursts.
 * Needs plimsoll.shares.lock. */
void plimsoll_take_in(struct plimsoll_meter *meter);

#endif
