/* Rows of codes, as floats. Compile-time parameters: NAME, EK_SIMD, TI (type of indices), and FOUR:
 * two codes per byte. */
#include "gather_codes.h"

#ifdef FOUR
/* `count` codes in the same half of their bytes. */
static void widen_half(const uint8_t *bytes, int shift, long count, float scale, float *y) {
    for (long i = 0; i < count; i++)
        y[i] = (float)((bytes[i] >> shift & 15) - 8) * scale;
}

static void widen(const uint8_t *row, long run, long from, long until, float scale, float *y) {
    const long half = run / 2, middle = ek_max(from, ek_min(until, half));
    widen_half(row + from, 0, middle - from, scale, y + from);
    widen_half(row + middle - half, 4, until - middle, scale, y + middle);
}
#define ROW_BYTES(run) ((run) / 2)
typedef uint8_t code;
#else
static void widen(const int8_t *row, long run, long from, long until, float scale, float *y) {
    (void)run;
    for (long i = from; i < until; i++)
        y[i] = (float)row[i] * scale;
}
#define ROW_BYTES(run) (run)
typedef int8_t code;
#endif

/* Tasks: indices. Whatever an index is, the read stays inside the codes. */
void NAME(const void *args, long begin, long end) {
    const ek_gather_codes_args *a = args;
    for (long t = begin; t < end; t++) {
        long at = (long)((const TI *)a->indices)[t];
        at = ek_max(0, ek_min(at < 0 ? at + a->size : at, a->size - 1));
        const code *row = (const code *)a->codes + at * ROW_BYTES(a->run);
        const float *scale = a->scale + at * (a->run / a->group);
        for (long from = 0; from < a->run; from += a->group)
            widen(row, a->run, from, from + a->group, *scale++, a->y + t * a->run);
    }
}
