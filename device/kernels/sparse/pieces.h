/* How the threads of one product share the strips. */
#ifndef EK_SPARSE_PIECES_H
#define EK_SPARSE_PIECES_H
#include "sparse.h"

typedef struct {
    const ek_sparse *a;
    const void *x;
    void *y;
    long pieces;
    void *scratch; /* [pieces] partial sums */
    int64_t part;  /* of the columns; its sums are added to those of the parts before */
} ek_spmv_call;

/* Where a piece begins: at a block of a strip; the end of the last is {the part's end, 0}. */
typedef struct {
    int64_t strip;
    long slot;
} ek_cut;

/* In the call's part. */
ek_cut ek_spmv_cut(const ek_spmv_call *call, long piece);
#endif
