/* The 8-bit operands of one family: how each is converted for the products (i8_tile.h), which
 * corrections that requires, and the layout of packed panels.
 *
 * Before inclusion: EK_SIMD, MR, NV and TYPES: 1 s8 . s8, 2 u8 . s8, 3 s8 . u8; AMX_LEAST with
 * EK_AMX: the number of rows from which tiles use tile registers.
 *
 *   A panel   [k / I8_STEP][rows][I8_STEP], then the rows' corrections, then `wide`
 *   B panel   as in i8_tile.h, then the columns' corrections, then `wide`
 *
 * k is rounded up to I8_STEP with values that count as zero. A flipped operand is off by +128 or
 * -128 for every value of the other operand: the correction added to the sums is that constant
 * times the sum of the other's row or column. `wide`: the panel contains a -128. */
#ifndef EK_GEMM_I8_TYPES_H
#define EK_GEMM_I8_TYPES_H
#include "microkernels.h"
#define A_UNSIGNED (TYPES == 2)
#define B_UNSIGNED (TYPES == 3)
#if A_UNSIGNED
typedef uint8_t i8_a;
#else
typedef int8_t i8_a;
#endif
#if B_UNSIGNED
typedef uint8_t i8_b;
#else
typedef int8_t i8_b;
#endif
#define ROW_TYPE i8_a
#define PANEL_TYPE i8_b
#include "i8_tile.h"

#if TYPES == 1
#define I8_FAMILY(part) ek_gemm_s8##part
#elif TYPES == 2
#define I8_FAMILY(part) ek_gemm_u8##part
#else
#define I8_FAMILY(part) ek_gemm_s8u8##part
#endif
/* Which operands are flipped, and the resulting correction factors. */
#define FLIP_BYTE 0x80
#define FLIP_WORD ((int32_t)0x80808080)
#if EK_I8 == EK_I8_DOT4_US
#define A_FLIP (TYPES == 1)
#define B_FLIP 0
#define COLUMN_FACTOR (TYPES == 1 ? -128 : 0)
#define ROW_FACTOR 0
#elif I8_BYTES
#define A_FLIP A_UNSIGNED
#define B_FLIP B_UNSIGNED
#define COLUMN_FACTOR (A_UNSIGNED ? 128 : 0)
#define ROW_FACTOR (B_UNSIGNED ? 128 : 0)
#else
#define A_FLIP 0
#define B_FLIP 0
#define COLUMN_FACTOR 0
#define ROW_FACTOR 0
#endif
#define HAS_WIDE (EK_I8 == EK_I8_MULL16 || (I8_TWO && TYPES == 1))
/* One row times a row-major B reads B in place (i8_gemv.h). */
#ifdef EK_GROUPS4
#define ROW_IN_PLACE 1
#else
#define ROW_IN_PLACE 0
#endif

EK_INLINE long i8_padded(long k) {
    return (k + I8_STEP - 1) / I8_STEP * I8_STEP;
}

/* Layout of a panel of `extent` rows or columns. */
typedef struct {
    size_t corrections, wide, bytes; /* offsets, and the size */
} i8_panel;

EK_INLINE i8_panel i8_panel_of(long extent, long k, int factor, size_t value_bytes) {
    i8_panel p;
    p.corrections = (size_t)(extent * i8_padded(k)) * value_bytes;
    p.wide = p.corrections + (factor ? (size_t)extent * sizeof(int32_t) : 0);
    p.bytes = p.wide + (HAS_WIDE ? sizeof(int32_t) : 0);
    return p;
}
#ifdef AMX_LEAST
/* Panels of A with at least AMX_LEAST rows are laid out for tile registers of up to AMX_ROWS rows,
 * each with 64 bytes along k or, if k is smaller, the corresponding number of complete groups:
 * [steps][rows][bytes of a row]. The last step ends at the last group, so that B is never read
 * beyond it; values that the previous step has counted are zero there, like those beyond k. Nothing
 * is flipped. */
#define AMX_ROWS 16
#define AMX_GROUPS 16
typedef struct {
    long steps, groups, last; /* groups per step, and the last step's first group */
} amx_depth;

EK_INLINE amx_depth amx_depth_of(long k) {
    const long all = (k + 3) / 4, groups = ek_max(ek_min(all, AMX_GROUPS), 1);
    return (amx_depth){(all + groups - 1) / groups, groups, all - groups};
}

/* Mask of the values that the last step counts. */
EK_INLINE uint64_t amx_last_values(amx_depth d, long k) {
    const long from = 4 * ((d.steps - 1) * d.groups - d.last), until = k - 4 * d.last;
    return ~(uint64_t)0 << from & ~(uint64_t)0 >> (64 - until);
}
#endif

EK_INLINE i8_panel i8_panel_of_a(long rows, long k) {
#ifdef AMX_LEAST
    if (rows >= AMX_LEAST) {
        const amx_depth d = amx_depth_of(k);
        const size_t bytes = (size_t)(d.steps * rows * d.groups * 4);
        return (i8_panel){bytes, bytes, bytes};
    }
#endif
    return i8_panel_of(rows, k, ROW_FACTOR, sizeof(i8_row));
}
EK_INLINE i8_panel i8_panel_of_b(long columns, long k) {
    return i8_panel_of(columns, k, COLUMN_FACTOR, sizeof(i8_value));
}
#endif
