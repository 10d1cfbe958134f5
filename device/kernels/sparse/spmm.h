/* What products of sparse weights with pixels share, with a plan and without. */
#ifndef EK_SPARSE_SPMM_H
#define EK_SPARSE_SPMM_H
#include "types.h"

#define LINE 64
#define L1_SETS 64 /* of most cores: enough to foresee conflicts */
#define L1_WAYS 8
#define FEW_USES 4          /* of a vector of pixels: below, copying it costs more than it saves */
#define MANY_USES 8         /* times the share of the pixels that find no room */
#define THREADED (1L << 15) /* multiply-adds of vectors that are worth a thread's waking */

/* The pool, if a product from a plan on so many vectors of pixels is worth it. */
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

/* Lines of the L1 cache that `cols` channels can hold `lines` next to each other in: channels at
 * like addresses drive each other out of it. */
EK_INLINE long room_of(const ek_spmm_args *args, long lines) {
    long apart = args->x_row * (long)sizeof(operand) / LINE;
    long starts = L1_SETS; /* sets that channels begin in */
    while (starts > 1 && apart % 2 == 0)
        apart /= 2, starts /= 2;
    return ek_min(starts * lines, L1_SETS) * L1_WAYS;
}

/* How often an element of X is used: the weights of its column, in the mean. */
EK_INLINE long uses_of(const ek_spmm_weights *a) {
    return (a->start[a->rows] - a->start[0]) / ek_max(a->cols, 1);
}

/* Whether to bring a tile's pixels together: loads that straddle lines of the cache cost twice, and
 * so do those that find their line driven out. */
EK_INLINE int wants_copy(const ek_spmm_args *args, long cols, long nv) {
    const long vector = HEIGHT * (long)sizeof(operand), row = args->x_row * (long)sizeof(operand);
    long uses = uses_of(args->a);
    if ((uintptr_t)args->x % (uintptr_t)vector || row % vector)
        return uses >= FEW_USES;
    long lines = (nv * vector + LINE - 1) / LINE;
    long room = room_of(args, lines), need = cols * lines;
    return need > room && uses * (need - room) >= MANY_USES * room;
}

/* Whether all channels begin in the same sets: then no tile stays in the cache where it is. */
EK_INLINE int all_alike(const ek_spmm_args *args) {
    return room_of(args, 1) == L1_WAYS;
}
#endif
