/* y = A . x over strips; compiled once per stored type (see types.h), EK_NAME is the symbol.
 *
 * The slots are divided into pieces at block boundaries. If a piece starts or ends within a strip,
 * its partial sums go to scratch; they are added in the order of pieces when all are done. */
#include "types.h"
#include "gather.h"
#include "packed.h"
#include "pieces.h"
#include "x86/windows.h"

#define PREFETCH_DISTANCE 1024 /* prefetch distance in bytes of values */
#define DIAGONAL_PREFETCH_DISTANCE                                                                 \
    3072                     /* for DIAGONAL strips, whose products take almost no time */
#define FAR_BYTES (1L << 20) /* of x: larger than L2 on most cores */

typedef struct {
    int64_t begun, ended; /* strips with incomplete sums; -1: none */
    sum begin[HEIGHT], end[HEIGHT];
    int64_t not_finite;
} partial;
_Static_assert(sizeof(partial) <= EK_STRIP_PARTIAL_BYTES, "scratch of a piece");

#define LINE 64
#define SLOT_BYTES (HEIGHT * (int)sizeof(value))
#ifdef __riscv /* no prefetch, so no need to group slots by line */
#define PER_LINE 1
#else
#define PER_LINE (SLOT_BYTES < LINE ? LINE / SLOT_BYTES : 1) /* slots per cache line */
#endif

/* Adds slots [from, to) of a strip to acc. */
#define ONE_SLOT(BYTES, GATHERED)                                                                  \
    acc = vsum_fma(vsum_from_values(v + s * HEIGHT), GATHERED(base, ix + s * HEIGHT * BYTES), acc);
#define LANES_LOOP(BYTES, GATHERED)                                                                \
    {                                                                                              \
        long s = from;                                                                             \
        while (s + PER_LINE <= to) {                                                               \
            __builtin_prefetch((const char *)(v + s * HEIGHT) + PREFETCH_DISTANCE);                \
            if (HEIGHT * BYTES >= LINE) /* these indices take as many bytes as the values */       \
                __builtin_prefetch((const char *)(ix + s * HEIGHT * BYTES) + PREFETCH_DISTANCE);   \
            EK_UNROLL for (int i = 0; i < PER_LINE; i++, s++) ONE_SLOT(BYTES, GATHERED)            \
        }                                                                                          \
        for (; s < to; s++)                                                                        \
            ONE_SLOT(BYTES, GATHERED)                                                              \
    }

EK_INLINE vsum add_slots(const ek_sparse *a, const ek_strip *strip, const operand *x, long from,
                         long to, vsum acc) {
    const value *v = (const value *)a->values + strip->slot * HEIGHT;
    const uint8_t *ix = a->index + strip->index;
    const operand *base = x + strip->base;
    if (strip->kind == EK_STRIP_DIAGONAL) {
        for (long s = from; s < to; s++) {
            if (SLOT_BYTES >= LINE)
                __builtin_prefetch((const char *)(v + s * HEIGHT) + DIAGONAL_PREFETCH_DISTANCE);
            const operand *diagonal = x + column_at(ix, s, 4);
            acc = vsum_fma(vsum_from_values(v + s * HEIGHT), vsum_from_x(diagonal), acc);
        }
#ifdef WINDOW
    } else if (strip->kind == EK_STRIP_WINDOWS) {
        acc = add_windows(v, strip, ix, base, a->cols - strip->base, from, to, acc);
#endif
    } else if (strip->kind == EK_STRIP_PACKED) {
        acc = add_packed(v, strip, ix, base, from, to, acc);
    } else if (strip->index_bytes == 1) {
        LANES_LOOP(1, gather_1)
#ifdef NEAR
    } else if (strip->index_bytes == 2 && a->cols - strip->base <= NEAR) {
        LANES_LOOP(2, gather_near)
#endif
    } else if (strip->index_bytes == 2) {
        LANES_LOOP(2, gather_2)
    } else if ((size_t)a->cols * sizeof *x > FAR_BYTES) {
        LANES_LOOP(4, gather_far)
    } else {
        LANES_LOOP(4, gather_4)
    }
    return acc;
}

/* Adds halves until one value is left, so that the order does not depend on the compiler. */
EK_INLINE sum total(vsum v) {
    sum t[HEIGHT];
    memcpy(t, &v, sizeof t);
    for (int n = HEIGHT / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            t[i] += t[i + n];
    return t[0];
}

/* Adds to the sums of previous parts; otherwise like finish. */
EK_INLINE vsum add_to_rows(const uint32_t *order, int rows, vsum acc, sum *y) {
    sum own[HEIGHT];
    memcpy(own, &acc, sizeof own);
    if (rows == HEIGHT)
        EK_UNROLL for (int l = 0; l < HEIGHT; l++) y[order[l]] += own[l];
    else
        for (int l = 0; l < rows; l++)
            y[order[l]] += own[l];
    return acc - acc;
}

/* Stores or adds the finished sums of a strip; returns 0 in all lanes, or NaN where a sum is not
 * finite. */
EK_INLINE vsum finish(const ek_sparse *a, const ek_strip *strip, vsum acc, sum *y,
                      const int first) {
    if (strip->kind == EK_STRIP_WIDE) {
        y[strip->row] = first ? total(acc) : y[strip->row] + total(acc);
        return acc - acc;
    }
    if (!first)
        return add_to_rows(a->order + strip->at, strip->rows, acc, y);
    if (strip->in_order && strip->rows == HEIGHT) {
        memcpy(y + strip->row, &acc, sizeof acc);
        return acc - acc;
    }
    const uint32_t *order = a->order + strip->at;
    for (int l = 0; l < strip->rows; l++)
        y[order[l]] = acc[l];
    return acc - acc;
}

static int any_set(vsum bad) {
    for (int l = 0; l < HEIGHT; l++)
        if (bad[l] != 0)
            return 1;
    return 0;
}

EK_INLINE void one_piece(const ek_spmv_call *call, ek_cut from, ek_cut to, partial *own,
                         const int first) {
    const ek_sparse *a = call->a;
    const operand *x = call->x;
    sum *y = call->y;
    vsum bad = {0};
    own->begun = own->ended = -1;
    int64_t i = from.strip;
    if (from.slot) {
        long end = i == to.strip ? to.slot : a->strip[i].slots;
        vsum acc = add_slots(a, a->strip + i, x, from.slot, end, (vsum){0});
        memcpy(own->begin, &acc, sizeof acc);
        own->begun = i++;
    }
    for (; i < to.strip; i++) {
        const ek_strip *s = a->strip + i;
        if (!first && !s->slots)
            continue;
        bad += finish(a, s, add_slots(a, s, x, 0, s->slots, (vsum){0}), y, first);
    }
    if (i == to.strip && to.slot) {
        vsum acc = add_slots(a, a->strip + i, x, 0, to.slot, (vsum){0});
        memcpy(own->end, &acc, sizeof acc);
        own->ended = i;
    }
    own->not_finite = any_set(bad);
}

/* Not static: profilers only see the exported names of a stripped library. */
#define JOIN(a, b) a##b
#define TASK(name) JOIN(name, _task)
void TASK(EK_NAME)(const void *args, long begin, long end);
void TASK(EK_NAME)(const void *args, long begin, long end) {
    const ek_spmv_call *call = args;
    for (long t = begin; t < end; t++) {
        ek_cut from = ek_spmv_cut(call, t), to = ek_spmv_cut(call, t + 1);
        partial *own = (partial *)call->scratch + t;
        if (call->part)
            one_piece(call, from, to, own, 0);
        else
            one_piece(call, from, to, own, 1);
    }
}

/* Adds the pieces' partial sums of shared strips. */
static int combine(const ek_spmv_call *call) {
    const partial *own = call->scratch;
    vsum acc = {0}, bad = {0};
    int not_finite = 0;
    int64_t open = -1;
    for (long t = 0; t < call->pieces; t++, own++) {
        not_finite |= own->not_finite;
        vsum part;
        if (own->begun >= 0) {
            memcpy(&part, own->begin, sizeof part);
            acc += part;
        }
        if (open >= 0 && (t + 1 == call->pieces || own[0].begun != own[1].begun)) {
            bad += finish(call->a, call->a->strip + open, acc, call->y, !call->part);
            open = -1;
        }
        if (own->ended >= 0) {
            memcpy(&acc, own->end, sizeof acc);
            open = own->ended;
        }
    }
    return not_finite | any_set(bad);
}

int EK_NAME(const ek_spmv_call *given, ek_pool *pool) {
    ek_spmv_call call = *given;
    int not_finite = 0;
    for (call.part = 0; call.part < call.a->parts; call.part++) {
        ek_parallel(pool, TASK(EK_NAME), &call, call.pieces, 1);
        not_finite |= combine(&call);
    }
    return not_finite;
}
