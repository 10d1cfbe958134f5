/* How 8-bit operands become panels (i8_types.h).
 *
 * Compile-time parameters: EK_SIMD, TYPES. */
#define MR 1
#define NV 1
#include "i8_types.h"

typedef uint8_t bytes16 __attribute__((vector_size(16)));

EK_INLINE bytes16 load16(const uint8_t *p) {
    bytes16 v;
    memcpy(&v, p, sizeof v);
    return v;
}
EK_INLINE void store16(void *p, bytes16 v) {
    memcpy(p, &v, sizeof v);
}

#define PAIRS_LOW(a, b)                                                                            \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PAIRS_HIGH(a, b)                                                                           \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define FOURS_LOW(a, b)                                                                            \
    __builtin_shufflevector(a, b, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23)
#define FOURS_HIGH(a, b)                                                                           \
    __builtin_shufflevector(a, b, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31)

/* The value at p as products take it. */
EK_INLINE i8_value value_at(const uint8_t *p, int is_unsigned, uint8_t flip) {
#if I8_BYTES
    (void)is_unsigned;
    return (i8_value)(*p ^ flip);
#else
    (void)flip;
    return is_unsigned ? *p : (int8_t)*p;
#endif
}

/* One line (a row of A, a column of B) into its place in groups of `group` values that are `next`
 * apart, with zeros beyond k. */
EK_INLINE void pack_line(const uint8_t *from, long k_step, long k, i8_value *to, long group,
                         long next, int is_unsigned, uint8_t flip) {
    const long padded = i8_padded(k);
    long p = 0;
#if I8_BYTES
    if (k_step == 1)
        for (; p + group <= k; p += group, to += next) {
            bytes16 v = {0};
            memcpy(&v, from + p, (size_t)group);
            v ^= flip;
            memcpy(to, &v, (size_t)group);
        }
#endif
    for (; p < padded; p += group, to += next)
        for (long i = 0; i < group; i++)
            to[i] = p + i < k ? value_at(from + (p + i) * k_step, is_unsigned, flip) : 0;
}

#if I8_BYTES && I8_GROUP == 4
/* Columns side by side in memory, sixteen at a time: four rows become groups of four. Returns how
 * many columns it took. */
EK_INLINE long pack_columns(const uint8_t *from, long k_step, long width, long padded, long k,
                            i8_value *to, uint8_t flip) {
    long j = 0;
    for (; j + 16 <= width; j += 16) {
        i8_value *at = to + j * 4;
        for (long p = 0; p < i8_padded(k); p += 4, at += padded * 4) {
            bytes16 row[4];
            EK_UNROLL
            for (int i = 0; i < 4; i++)
                row[i] = p + i < k ? load16(from + (p + i) * k_step + j) ^ flip : (bytes16){0};
            const bytes16 low[2] = {PAIRS_LOW(row[0], row[1]), PAIRS_LOW(row[2], row[3])};
            const bytes16 high[2] = {PAIRS_HIGH(row[0], row[1]), PAIRS_HIGH(row[2], row[3])};
            store16(at, FOURS_LOW(low[0], low[1]));
            store16(at + 16, FOURS_HIGH(low[0], low[1]));
            store16(at + 32, FOURS_LOW(high[0], high[1]));
            store16(at + 48, FOURS_HIGH(high[0], high[1]));
        }
    }
    return j;
}
#elif EK_I8 == EK_I8_PAIR16
typedef int16_t pairs __attribute__((vector_size(32)));
#define WIDEN(bytes)                                                                               \
    (B_UNSIGNED                                                                                    \
         ? __builtin_convertvector(bytes, pairs)                                                   \
         : __builtin_convertvector((int8_t __attribute__((vector_size(16))))(bytes), pairs))
EK_INLINE long pack_columns(const uint8_t *from, long k_step, long width, long padded, long k,
                            i8_value *to, uint8_t flip) {
    (void)flip;
    long j = 0;
    for (; j + 16 <= width; j += 16) {
        i8_value *at = to + j * 2;
        for (long p = 0; p < k; p += 2, at += padded * 2) {
            const uint8_t *row = from + p * k_step + j;
            const bytes16 first = load16(row);
            const bytes16 second = p + 1 < k ? load16(row + k_step) : (bytes16){0};
            const pairs low = WIDEN(PAIRS_LOW(first, second));
            const pairs high = WIDEN(PAIRS_HIGH(first, second));
            memcpy(at, &low, sizeof low);
            memcpy(at + 16, &high, sizeof high);
        }
    }
    return j;
}
#else
EK_INLINE long pack_columns(const uint8_t *from, long k_step, long width, long padded, long k,
                            i8_value *to, uint8_t flip) {
    (void)from, (void)k_step, (void)width, (void)padded, (void)k, (void)to, (void)flip;
    return 0;
}
#endif

#if COLUMN_FACTOR && I8_GROUP == 4
/* What flipping A takes from the sums: factor * sum over k of each column of a panel of B. */
static void write_corrections(const i8_value *values, long columns, long k, int factor,
                              int32_t *to) {
    const vi ones = vi_splat(0x01010101);
    for (long j = 0; j < columns; j += EK_VL) {
        const i8_value *at = values + j * 4;
        vi sum = {0};
        for (long p = 0; p < i8_padded(k); p += 4, at += columns * 4)
            sum = vi_dot4(sum, ones, i8_vector(at));
        vi_store(to + j, sum * factor);
    }
}
#elif COLUMN_FACTOR || ROW_FACTOR
/* What flipping the other operand takes from the sums: factor * sum over k of each line of a
 * panel, whose values lie sixteen by sixteen. */
static void write_corrections(const i8_value *values, long lines, long k, int factor, int32_t *to) {
    const vi ones = vi_splat(0x01010101);
    for (long j = 0; j < lines; j++) {
        vi sum = {0};
        for (long p = 0; p < i8_padded(k); p += 16)
#if EK_I8 == EK_I8_MULL16
            sum = vi_mull16(sum, i8_vector(values + p * lines + j * 16), ones, 1);
#else
            sum = vi_dot4(sum, i8_vector(values + p * lines + j * 16), ones);
#endif
        to[j] = (int32_t)((uint32_t)__builtin_reduce_add(sum) * (uint32_t)factor);
    }
}
#else
static void write_corrections(const i8_value *values, long lines, long k, int factor, int32_t *to) {
    (void)values, (void)lines, (void)k, (void)factor, (void)to;
}
#endif

#if HAS_WIDE
static int32_t holds_lowest(const i8_value *values, size_t count) {
    i8_value low = 0;
    for (size_t i = 0; i < count; i++)
        low = values[i] < low ? values[i] : low;
    return low == -128;
}
#endif

/* What follows the values of a panel. */
EK_INLINE void finish_panel(i8_panel panel, long extent, long k, int factor, void *to) {
    if (factor)
        write_corrections(to, extent, k, factor, (int32_t *)((char *)to + panel.corrections));
#if HAS_WIDE
    const int32_t wide = holds_lowest(to, panel.corrections);
    memcpy((char *)to + panel.wide, &wide, sizeof wide);
#endif
}

static void pack_a(const void *from, long step, long k_step, long width, long vectors, long k,
                   void *to) {
    (void)vectors;
#if EK_I8 == EK_I8_WIDE16
    const i8_row *rows = from;
    i8_row *at = to;
    for (long p = 0; p < k; p++)
        for (long i = 0; i < width; i++)
            *at++ = rows[i * step + p * k_step];
#else
    for (long i = 0; i < width; i++)
        pack_line((const uint8_t *)from + i * step, k_step, k, (i8_value *)to + i * I8_STEP,
                  I8_STEP, width * I8_STEP, A_UNSIGNED, A_FLIP ? FLIP_BYTE : 0);
    finish_panel(i8_panel_of_a(width, k), width, k, ROW_FACTOR, to);
#endif
}

static void pack_b(const void *from, long step, long k_step, long width, long vectors, long k,
                   void *to) {
    const long columns = vectors * EK_VL;
    const uint8_t flip = B_FLIP ? FLIP_BYTE : 0;
    long j = step == 1 ? pack_columns(from, k_step, width, columns, k, to, flip) : 0;
    for (; j < width; j++)
        pack_line((const uint8_t *)from + j * step, k_step, k, (i8_value *)to + j * I8_GROUP,
                  I8_GROUP, columns * I8_GROUP, B_UNSIGNED, flip);
    for (; j < columns; j++)
        pack_line(from, 0, 0, (i8_value *)to + j * I8_GROUP, I8_GROUP, columns * I8_GROUP, 0, 0);
    finish_panel(i8_panel_of_b(columns, k), columns, k, COLUMN_FACTOR, to);
}

static size_t a_panel(long rows, long k) {
    return i8_panel_of_a(rows, k).bytes;
}

static size_t b_panel(long vectors, long k) {
    return i8_panel_of_b(vectors * EK_VL, k).bytes;
}

static int a_form(const ek_gemm_args *args) {
    return I8_IN_PLACE && !ROW_FACTOR && args->a_col == 1 ? EK_GEMM_ROWS : -1;
}

static int b_form(const ek_gemm_args *args) {
    (void)args;
    return -1;
}

void I8_FAMILY(_dot)(const ek_gemm_job *job, const void *a, const void *b, long b_col, void *c,
                     long count, long column);

const ek_gemm_operands I8_FAMILY() = {
    .a_bytes = 1,
    .b_bytes = 1,
    .vl = EK_VL,
    .whole_k = 1,
    .a_panel = a_panel,
    .b_panel = b_panel,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .a_form = a_form,
    .b_form = b_form,
    .dot = I8_FAMILY(_dot),
};
