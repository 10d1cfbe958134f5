/* Division of a product's strips among threads. */
#ifndef EK_SPARSE_PIECES_H
#define EK_SPARSE_PIECES_H
#include "sparse.h"

typedef struct {
    const ek_sparse *a;
    const void *x;
    void *y;
    long pieces;
    void *scratch; /* [pieces] partial sums */
    int64_t part;  /* part of the columns; its sums are added to those of previous parts */
} ek_spmv_call;

/* Start of a piece, at a block of a strip; the end of the last piece is {the part's end, 0}. */
typedef struct {
    int64_t strip;
    long slot;
} ek_cut;

/* Within the call's part. */
ek_cut ek_spmv_cut(const ek_spmv_call *call, long piece);
#endif
