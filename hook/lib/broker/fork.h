/* The child of a fork. */
#ifndef PLIMSOLL_FORK_H
#define PLIMSOLL_FORK_H

/* In the child: forgets what the parent held, and makes every lock new. Attached again, the child claims a
 * slot of its own. */
void plimsoll_forget_in_child(void);

#endif
