/* Where the pieces of a product begin. */
#include "pieces.h"

ek_cut ek_spmv_cut(const ek_sparse *a, long piece, long pieces) {
    if (piece == 0)
        return (ek_cut){0, 0};
    if (piece == pieces)
        return (ek_cut){a->strips, 0};
    int64_t at = a->slots / pieces * piece + a->slots % pieces * piece / pieces;
    int64_t low = 0, high = a->strips; /* the first strip that ends behind `at` */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (a->strip[middle].slot + a->strip[middle].slots > at)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == a->strips)
        return (ek_cut){low, 0};
    int64_t slot = at - a->strip[low].slot;
    return (ek_cut){low, (long)(slot - slot % a->width)};
}
