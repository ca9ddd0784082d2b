/* The child of a fork. */
#ifndef PLIMSOLL_FORK_H
#define PLIMSOLL_FORK_H

/* In the child: forgets what the parent held, and makes every lock new. The child claims a slot of its own
 * when it attaches. */
void plimsoll_forget_in_child(void);

#endif
