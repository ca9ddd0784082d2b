/* Contexts that end, with or without a call of the program: what is metered of them ends before. */
#ifndef PLIMSOLL_ENDINGS_H
#define PLIMSOLL_ENDINGS_H

#include <stdint.h>

/* Before a context is destroyed, released or reset: nobody uses our events of it any more. Waits, shortly,
 * for those who do. What it has unfinished counts as executing until `plimsoll_bursts_forgotten`, after the
 * driver's call, which may wait for it. Returns the GPU to tell that; -1 if nothing is unfinished. */
int plimsoll_bursts_forget(uint64_t context);

void plimsoll_bursts_forgotten(int gpu);

/* After a context ended unseen: its events are gone with it. */
void plimsoll_bursts_lost(uint64_t context);

/* After that, where the context lives on: whatever it has unfinished is metered by one mark behind it all. */
void plimsoll_bursts_resume(uint64_t context, int gpu);

#endif
