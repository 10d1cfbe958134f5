/* Pruned layers of 8-bit codes: rows of x times the weights that are not zero. */
#ifndef EK_SPARSE_CODES_H
#define EK_SPARSE_CODES_H
#include "../kernel.h"

/* A strip of ROWS outputs is a run of groups. A group is multiplied with a window of
 * WINDOW inputs, wherever that begins, and holds so many slots: a column of the window and
 * a weight for each output, all columns first. Padding: weight 0 of any column. */
typedef struct {
    long rows, cols, points; /* outputs and inputs of a point; points of x */
    long pieces, block;      /* of the strips; points that a task multiplies */
    const uint32_t *cut;     /* [pieces + 1] the first strip of each piece */
    const uint32_t *first;   /* [strips + 1] the first group of each strip */
    const uint16_t *base;    /* [groups] the first column of its window */
    const int8_t *groups;    /* [groups][2][SLOTS * ROWS] */
    const uint32_t *order;   /* [strips * ROWS] the output of each row of a strip */
    /* y = clamp(requantize(sum + bias) + y_zero), in the strips' order, padded by a vector */
    const int32_t *bias, *multiplier, *left, *right;
    int y_zero, low, high;
    long pitch; /* elements of y from one point to the next */
    const void *x;
    void *y;
} ek_sparse_codes_args;
#endif
