/* Start positions of a product's pieces. */
#include "pieces.h"

/* Number of slots before a strip. */
static int64_t slots_before(const ek_sparse *a, int64_t strip) {
    return strip < a->strips ? a->strip[strip].slot : a->slots;
}

ek_cut ek_spmv_cut(const ek_spmv_call *call, long piece) {
    const ek_sparse *a = call->a;
    const int64_t first = a->part[call->part], last = a->part[call->part + 1];
    if (piece == 0)
        return (ek_cut){first, 0};
    if (piece == call->pieces)
        return (ek_cut){last, 0};
    int64_t at = slots_before(a, first), slots = slots_before(a, last) - at;
    at += slots / call->pieces * piece + slots % call->pieces * piece / call->pieces;
    int64_t low = first, high = last; /* the first strip that ends after `at` */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (a->strip[middle].slot + a->strip[middle].slots > at)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == last)
        return (ek_cut){low, 0};
    int64_t slot = at - a->strip[low].slot;
    return (ek_cut){low, (long)(slot - slot % a->width)};
}
