/* How the threads of one product share the strips. */
#ifndef EK_SPARSE_PIECES_H
#define EK_SPARSE_PIECES_H
#include "sparse.h"

/* Of scratch per piece: two vectors of sums of the longest kind, and whose they are. */
#define EK_PARTIAL_BYTES 192

typedef struct {
    const ek_sparse *a;
    const void *x;
    void *y;
    long pieces;
    void *scratch; /* [pieces] partial sums */
} ek_spmv_call;

/* Where a piece begins: at a block of a strip; the end of the last is {strips, 0}. */
typedef struct {
    int64_t strip;
    long slot;
} ek_cut;

ek_cut ek_spmv_cut(const ek_sparse *a, long piece, long pieces);
#endif
