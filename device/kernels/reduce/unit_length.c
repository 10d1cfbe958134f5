/* L2 normalization of quantized rows: the result has scale 1/128 and zero point Y_ZERO.
 * Compile-time parameters: NAME, EK_SIMD, TX (int8_t, uint8_t), Y_ZERO, LOW, HIGH. */
#include "inverse_root.h"
#include "../kernel.h"

typedef struct {
    long n; /* values per row */
    int x_zero;
    const void *x;
    void *y;
} ek_unit_length_args;

/* Task: one row. */
void NAME(const void *args, long begin, long end) {
    const ek_unit_length_args *a = args;
    for (long t = begin; t < end; t++) {
        const TX *x = (const TX *)a->x + t * a->n;
        TX *restrict y = (TX *)a->y + t * a->n;
        int32_t sum = 0;
        int shift;
        for (long i = 0; i < a->n; i++)
            sum += (x[i] - a->x_zero) * (x[i] - a->x_zero);
        const int32_t factor = ek_inverse_root(sum, &shift);
        /* For s8, the factor 128 is merged into the factor's shift; for u8, it is applied
         * before. */
        const int joined = (TX)-1 < 0 ? (shift < 7 ? shift : 7) : 0;
        const int left = 7 - joined, right = shift - joined;
        const int32_t mask = (int32_t)((1u << right) - 1);
        for (long i = 0; i < a->n; i++) {
            const int32_t high = ek_multiply_high((x[i] - a->x_zero) * (1 << left), factor);
            const int32_t v = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0)) + Y_ZERO;
            y[i] = (TX)(v < LOW ? LOW : v > HIGH ? HIGH : v);
        }
    }
}
