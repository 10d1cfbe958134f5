/* Threads that all models and products of a process share, whatever their releases; mirrors
 * device/runtime/pools.py. */
#ifndef EK_POOLS_H
#define EK_POOLS_H
#include "ek.h"
#include "placement.h"

typedef struct ek_shared_pool ek_shared_pool;

/* Threads for a placement of several threads; NULL if they cannot be started. They run in `library`
 * or in one that was loaded before. Any number of inferences may use them at the same time. */
ek_shared_pool *ek_pool_share(void *library, const ek_placement *placement);

/* So many threads, wherever those of an earlier pool are. */
ek_shared_pool *ek_pool_share_any(void *library, int threads);

ek_pool *ek_pool_of(const ek_shared_pool *shared);

/* Ends the threads if nothing else uses them. */
void ek_pool_leave(ek_shared_pool *shared);

/* Unloads a library, once no pool runs in it. */
void ek_pool_unload(void *library);

#endif
