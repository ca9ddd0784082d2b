/* The keeper: this library's one thread. It polls the marks while no thread of the program does. */
#ifndef PLIMSOLL_KEEPER_H
#define PLIMSOLL_KEEPER_H

/* Starts the keeper if this process has none. Costs one load if the keeper runs, or if the container has no
 * gate. */
void plimsoll_keeper_need(void);

/* After a launch: wakes the keeper if it rests and there is work. Costs one load if it does not rest. */
void plimsoll_keeper_wake(void);

#endif
