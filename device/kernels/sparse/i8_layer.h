/* Pruned layers on 8-bit quantized values: rows of x, or windows of an image, times the nonzero
 * weights. */
#ifndef EK_SPARSE_I8_H
#define EK_SPARSE_I8_H
#include "../kernel.h"

/* A strip of ROWS outputs is a sequence of groups. A group is multiplied with a window of WINDOW
 * inputs at any position and has SLOTS slots: a window column and a weight per output, with all
 * columns first. Padding has weight 0. */
typedef struct {
    long rows, cols, points; /* outputs and inputs per point; points of x */
    long pieces, block;      /* pieces of the strips; points per task */
    const uint32_t *cut;     /* [pieces + 1] each piece's first strip */
    const uint32_t *first;   /* [strips + 1] each strip's first group */
    const uint16_t *base;    /* [groups] the window's first column */
    const int8_t *groups;    /* [groups][2][SLOTS * ROWS] */
    const uint32_t *order;   /* [strips * ROWS] each strip row's output */
    /* y = clamp(requantize(sum + bias) + y_zero), in strip order, padded by a vector */
    const int32_t *bias, *multiplier, *left, *right;
    int y_zero, low, high;
    long pitch; /* elements between consecutive points of y */
    const void *x;
    void *y;
    ek_window win; /* COPIED: cols are the window of a point of y */
    int x_zero;    /* in its padding */
} ek_sparse_i8_args;
#endif
