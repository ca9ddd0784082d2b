#include "broker/fork.h"

#include <string.h>

#include "memory/pools/records.h"
#include "share/captures.h"
#include "share/meters.h"
#include "state.h"

/* The child shares the mapped files but not the slot. It holds no GPU memory, because CUDA does not survive a
 * fork. No thread of the child holds a lock that another thread held at the fork. */
void plimsoll_forget_in_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    plimsoll.resolve_lock = plimsoll.attach_lock = plimsoll.retry_lock = plimsoll.context_lock = fresh;
    plimsoll.is_refreshing = false;
    plimsoll_holdings_reset(&plimsoll.holdings);
    plimsoll_pools_reset();
    plimsoll_captures_reset();
    plimsoll_shares_in_child();
    plimsoll.graphs_counted = 0;
    memset(plimsoll.contexts, 0, sizeof(plimsoll.contexts));
    memset(plimsoll.gpu_of_device, 0, sizeof(plimsoll.gpu_of_device)); /* the child may see other devices */
    plimsoll.is_announced = false;
    plimsoll_depth = 0;
    if (plimsoll.attachment == ATTACHMENT_FULL)
        plimsoll.attachment = ATTACHMENT_MAPPED;
}
