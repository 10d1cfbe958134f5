/* y[i] = table[x[i]] for bytes, with each instruction set's table lookups. Include after
 * kernel.h. */
#ifndef EK_LOOK_UP_H
#define EK_LOOK_UP_H

#ifdef __aarch64__
#include <arm_neon.h>
/* One quarter of the table each; an out-of-range index yields 0 (TBL) or keeps the old value
 * (TBX). */
typedef struct {
    uint8x16x4_t quarter[4];
} ek_table;
EK_INLINE ek_table ek_table_at(const uint8_t *table) {
    ek_table t;
    EK_UNROLL
    for (int q = 0; q < 4; q++)
        t.quarter[q] = vld1q_u8_x4(table + 64 * q);
    return t;
}
EK_INLINE uint8x16_t ek_look_up16(const ek_table *t, uint8x16_t x) {
    const uint8x16_t step = vdupq_n_u8(64);
    uint8x16_t y = vqtbl4q_u8(t->quarter[0], x);
    EK_UNROLL
    for (int q = 1; q < 4; q++) {
        x = vsubq_u8(x, step);
        y = vqtbx4q_u8(y, t->quarter[q], x);
    }
    return y;
}
#elif defined __riscv_vector
#include <riscv_vector.h>
#endif

/* n bytes; y may be x. */
static void __attribute__((noinline, unused)) ek_look_up(const uint8_t *table, const uint8_t *x,
                                                         uint8_t *y, long n) {
#ifdef __aarch64__
    const ek_table t = ek_table_at(table);
    for (; n >= 32; n -= 32, x += 32, y += 32) {
        const uint8x16_t first = ek_look_up16(&t, vld1q_u8(x));
        const uint8x16_t second = ek_look_up16(&t, vld1q_u8(x + 16));
        vst1q_u8(y, first);
        vst1q_u8(y + 16, second);
    }
    if (n >= 16) {
        vst1q_u8(y, ek_look_up16(&t, vld1q_u8(x)));
        n -= 16, x += 16, y += 16;
    }
    if (n) {
        uint8_t last[16] = {0};
        ek_copy_short(last, x, n);
        vst1q_u8(last, ek_look_up16(&t, vld1q_u8(last)));
        ek_copy_short(y, last, n);
    }
#elif defined __riscv_vector
    for (size_t now; n > 0; n -= (long)now, x += now, y += now) {
        now = __riscv_vsetvl_e8m8((size_t)n);
        const vuint8m8_t index = __riscv_vle8_v_u8m8(x, now);
        __riscv_vse8_v_u8m8(y, __riscv_vluxei8_v_u8m8(table, index, now), now);
    }
#else
    for (; n >= 4; n -= 4, x += 4, y += 4) {
        const uint8_t a = table[x[0]], b = table[x[1]], c = table[x[2]], d = table[x[3]];
        y[0] = a, y[1] = b, y[2] = c, y[3] = d;
    }
    for (long i = 0; i < n; i++)
        y[i] = table[x[i]];
#endif
}
#endif
