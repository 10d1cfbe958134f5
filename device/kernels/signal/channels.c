/* Per-channel functions of a microphone front end, in fixed point.
 *
 * Compile-time parameters: NAME, EK_SIMD, TY (of y), TT (of the table), and OP_GAIN (gain control
 * by a noise estimate) or OP_LOG. */
#include "../kernel.h"

typedef struct {
    long scale, shift;
    const void *x, *noise, *table;
    void *y;
} ek_channels_args;

static inline int length_of(uint32_t x) {
    return 32 - __builtin_clz(x);
}

#ifdef OP_GAIN
#define SNR_BITS 12   /* fraction bits: of a gain, */
#define OUTPUT_BITS 6 /* of its result, */
#define PLACE_BITS 10 /* of a position between two powers of two */

/* A quadratic polynomial for each power of two, from 3 up. */
static int16_t gain_of(uint32_t x, const TT *table) {
    if (x < 3)
        return table[x];
    const int length = length_of(x), most = PLACE_BITS + 1;
    const TT *c = table + 4 * length - 6;
    const uint32_t place = length < most ? x << (most - length) : x >> (length - most);
    const uint32_t part = place & ((1 << PLACE_BITS) - 1);
    const int32_t slope = ((c[2] * (int32_t)part) >> 5) + c[1] * 32;
    const uint32_t product = (uint32_t)slope * part;
    return (int16_t)(((int32_t)(product + (1 << 14)) >> 15) + c[0]);
}

static inline TY f(const ek_channels_args *g, uint32_t x, uint32_t noise) {
    const uint32_t gain = (uint32_t)gain_of(noise, g->table);
    const uint32_t snr = (uint32_t)(((uint64_t)x * gain) >> g->shift);
    if (snr < 2 << SNR_BITS)
        return (snr * snr) >> (2 + 2 * SNR_BITS - OUTPUT_BITS);
    return (snr >> (SNR_BITS - OUTPUT_BITS)) - (1 << OUTPUT_BITS);
}
#endif

#ifdef OP_LOG
#define LN_2 45426     /* times 2^16 */
#define SEGMENT_BITS 9 /* fraction bits of a position in one of 128 segments */

static inline TY f(const ek_channels_args *g, uint32_t x, uint32_t noise) {
    const TT *table = g->table;
    const uint32_t scaled = x << g->shift;
    (void)noise;
    if (scaled < 2)
        return 0;
    const int integer = length_of(scaled) - 1;
    uint32_t part = (uint32_t)(((uint64_t)(scaled - (1u << integer)) << 16) >> integer);
    const int32_t from = table[part >> SEGMENT_BITS], to = table[(part >> SEGMENT_BITS) + 1];
    const int32_t along = part & ((1 << SEGMENT_BITS) - 1);
    part += (uint32_t)(from + ((to - from) * along >> 16));
    const uint64_t log2 = ((uint32_t)integer << 16) + part;
    const uint32_t natural = (uint32_t)((LN_2 * log2 + (1 << 15)) >> 16);
    const uint32_t made = ((uint32_t)g->scale * natural + (1 << 15)) >> 16;
    return (TY)(made < INT16_MAX ? made : INT16_MAX);
}
#endif

/* Task: one channel. */
void NAME(const void *args, long begin, long end) {
    const ek_channels_args *g = args;
    const uint32_t *x = g->x, *noise = g->noise;
    TY *y = g->y;
    for (long i = begin; i < end; i++)
        y[i] = f(g, x[i], noise[i]);
}
