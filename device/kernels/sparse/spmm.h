/* Common parts of products of sparse weights with pixels, with and without a plan. */
#ifndef EK_SPARSE_SPMM_H
#define EK_SPARSE_SPMM_H
#include "types.h"

#define LINE 64
#define L1_SETS 64 /* on most cores: sufficient to predict conflicts */
#define L1_WAYS 8
#define FEW_USES 4 /* uses of a vector of pixels below which copying it does not pay off */
/* Scaled by the fraction of pixels that do not fit. */
#define MANY_USES (EK_VL > 1 ? 8 : 2)
#define THREADED (1L << 15) /* vector multiply-adds worth waking a thread for */

/* The pool if a product from a plan on that many vectors of pixels is worthwhile, else NULL. */
EK_INLINE ek_pool *worthwhile(const ek_spmm_plan *plan, long vectors, ek_pool *pool) {
    if (!pool || !plan->pairs)
        return NULL;
    const ek_spmm_pair *last = plan->pair + plan->panels * plan->pairs - 1;
    long values = (long)last->value + 4L * last->both + 2L * last->single;
    return values * vectors >= THREADED ? pool : NULL;
}

EK_INLINE vsum splat(sum value) {
    return value - (vsum){0};
}

/* Number of L1 lines available to `cols` channels with `lines` adjacent lines each: channels at
 * similar addresses evict each other. */
EK_INLINE long capacity_of(const ek_spmm_args *args, long lines) {
    long apart = args->x_row * (long)sizeof(operand) / LINE;
    long starts = L1_SETS; /* sets in which channels start */
    while (starts > 1 && apart % 2 == 0)
        apart /= 2, starts /= 2;
    return ek_min(starts * lines, L1_SETS) * L1_WAYS;
}

/* Mean number of uses of an element of X: the weights per column. */
EK_INLINE long uses_of(const ek_spmm_weights *a) {
    return (a->start[a->rows] - a->start[0]) / ek_max(a->cols, 1);
}

/* Whether to copy a tile's pixels together: loads that straddle cache lines cost twice, as do loads
 * of evicted lines. */
EK_INLINE int wants_copy(const ek_spmm_args *args, long cols, long nv) {
    const long vector = HEIGHT * (long)sizeof(operand), row = args->x_row * (long)sizeof(operand);
    long uses = uses_of(args->a);
    if ((uintptr_t)args->x % (uintptr_t)vector || row % vector)
        return uses >= FEW_USES;
    long lines = (nv * vector + LINE - 1) / LINE;
    long capacity = capacity_of(args, lines), need = cols * lines;
    return need > capacity && uses * (need - capacity) >= MANY_USES * capacity;
}

/* Whether all channels start in the same sets; then no tile stays in the cache in place. */
EK_INLINE int all_share_sets(const ek_spmm_args *args) {
    return capacity_of(args, 1) == L1_WAYS;
}
#endif
