#include "conv/f32_conv.h"
#include "kernel.h"
#include "pool/pool.h"
#include <math.h>
#include "runtime/clock.h"

void ek_f32_conv_6x12_neon(const void *, long, long);
void ek_f32_max_pool_neon(const void *, long, long);
void ek_stamps_finish(uint64_t *, int, uint64_t);

static const char description[] = "{\042name\042: \042small\042, \042inputs\042: [{\042name\042: \042x\042, \042dtype\042: \042f32\042, \042shape\042: [1, 4, 4, 1], \042scale\042: null, \042zero_point\042: null}], \042outputs\042: [{\042name\042: \042y\042, \042dtype\042: \042f32\042, \042shape\042: [1, 2], \042scale\042: null, \042zero_point\042: null}], \042arena_bytes\042: 64, \042state_bytes\042: 0, \042weights_bytes\042: 320, \042simd\042: \042neon\042, \042operators\042: [{\042name\042: \042conv\042, \042op\042: \042conv2d\042, \042kernel\042: \042ek_f32_conv_6x12_neon\042}, {\042name\042: \042pool\042, \042op\042: \042max_pool2d\042, \042kernel\042: \042ek_f32_max_pool_neon\042}]}";

int ek_abi(void) { return EK_ABI; }
const char *ek_describe(void) { return description; }
int ek_operators(void) { return 2; }

void ek_reset(const ek_model *m) {
    (void)m;
}

int ek_run(const ek_model *m, const void *const *in, void *const *out) {
    const char *const w = m->weights;
    char *const a = m->arena, *const s = m->state;
    ek_pool *const pool = m->pool;
    uint64_t *const stamps = m->stamps, start = stamps ? ek_nanoseconds() : 0;
    (void)w, (void)a, (void)s, (void)in, (void)out, (void)pool;
    if (stamps)
        stamps[0] = ek_ticks();
    { /* conv: conv2d */
        {
            const ek_f32_conv_args c = {
            .win = {1, 4, 4, 1, 2, 2, 2, 3, 3, 1, 1, 1, 1, 0, 0}, .pointwise = 0,
            .row_segments = 1, .panel_outer = 0, .panels = 1, .x = (void *)((const char
            *)in[0] + 0), .weights = (const void *)(w + 0), .bias = (const void *)(w + 192),
            .zeros = (const void *)(w + 256), .residual = NULL, .y = (void *)(a + 0), .low =
            -INFINITY, .high = INFINITY};
            ek_parallel(pool, ek_f32_conv_6x12_neon, &c, 1, 1);
        }
    }
    if (stamps)
        stamps[1] = ek_ticks();
    { /* pool: max_pool2d */
        {
            const ek_pool2d_args c = {
            .win = {1, 2, 2, 2, 1, 1, 2, 2, 2, 2, 2, 1, 1, 0, 0}, .x = (void *)(a + 0), .y =
            (void *)((char *)out[0] + 0), .low_f32 = -INFINITY, .high_f32 = INFINITY};
            ek_parallel(pool, ek_f32_max_pool_neon, &c, 1, 1);
        }
    }
    if (stamps)
        stamps[2] = ek_ticks();
    if (stamps)
        ek_stamps_finish(stamps, 2, ek_nanoseconds() - start);
    return 0;
}
