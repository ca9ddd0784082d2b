/* The keeper: this library's one thread, which looks when no thread of the program does. */
#ifndef PLIMSOLL_KEEPER_H
#define PLIMSOLL_KEEPER_H

/* Starts it where this process has none. One load when it has, or when no gate holds this container. */
void plimsoll_keeper_need(void);

/* After a launch: wakes it if it rests and there is work. One load when it does not rest. */
void plimsoll_keeper_stir(void);

#endif
