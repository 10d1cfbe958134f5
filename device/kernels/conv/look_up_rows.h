/* Function of quantized values fused into an 8-bit convolution, as a lookup table. LOOK_UP 1: 256
 * entries; LOOK_UP 2: 256 entries per channel. Without LOOK_UP there is none. */
#ifndef EK_LOOK_UP_ROWS_H
#define EK_LOOK_UP_ROWS_H
#ifdef LOOK_UP
#include "../elementwise/look_up.h"

/* Applies it to `rows` rows of n values, `pitch` apart, that start at the same channel. */
static void __attribute__((noinline)) look_up_rows(const uint8_t *table, void *values, long pitch,
                                                   long rows, long channel, long n) {
    uint8_t *y = values;
#if LOOK_UP == 1
    (void)channel;
    if (n == pitch)
        n *= rows, rows = 1;
    for (; rows > 0; rows--, y += pitch)
        ek_look_up(table, y, y, n);
#else
    table += channel * 256;
    for (; rows > 0; rows--, y += pitch)
        for (long i = 0; i < n; i++)
            y[i] = table[i * 256 + y[i]];
#endif
}
#else
EK_INLINE void look_up_rows(const uint8_t *table, void *values, long pitch, long rows, long channel,
                            long n) {
    (void)table, (void)values, (void)pitch, (void)rows, (void)channel, (void)n;
}
#endif
#endif
