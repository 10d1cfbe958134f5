/* Packs 8-bit operands into panels (i8_types.h).
 *
 * Compile-time parameters: EK_SIMD, TYPES, AMX_LEAST. */
#define MR 1
#define NV 1
#include "i8_types.h"
#if EK_I8 != EK_I8_WIDE16
#include "i8_pack_transpose.h"
#endif
/* All panels take a few rows before the next rows follow: B is read along its rows, and lines that
 * share a cache set do not evict each other. */
#define ROWS_AT_ONCE 16
_Static_assert(ROWS_AT_ONCE % I8_STEP == 0, "slices are multiples of a step");
#ifdef EK_GROUPS4
#include "x86/i8_pack_groups.h"
#define FUSED_SUMS 1
#else
#define FUSED_SUMS 0
#endif
#if EK_I8 != EK_I8_WIDE16

#define FORM_OF_A (sizeof(i8_row) == 1 ? AS_BYTE : A_UNSIGNED ? WIDE_UNSIGNED : WIDE_SIGNED)

/* Stores value i of a group: the byte at p in the form that products expect, or zero beyond k. */
EK_INLINE void store_value(const uint8_t *p, char *to, long i, const value_form form,
                           uint8_t flip) {
    const uint8_t byte = p ? *p ^ flip : 0;
    const int16_t wide = form == WIDE_SIGNED ? (int8_t)byte : byte;
    if (form == AS_BYTE)
        to[I8_PLACE(i)] = (char)byte;
    else
        memcpy(to + 2 * i, &wide, sizeof wide);
}

/* Packs one line (a row of A, a column of B) in groups of `group` values, `next` apart, zero-padded
 * beyond k to the panel's depth. */
EK_INLINE void pack_line(const uint8_t *from, long k_step, long k, long depth, void *panel,
                         const long group, long lines, const value_form form, uint8_t flip) {
    const long padded = i8_padded(depth), next = lines * group * VALUE_BYTES(form);
    char *to = panel;
    long p = 0;
    if (k_step == 1 && form == AS_BYTE && EK_I8 != EK_I8_FOUR16)
        for (; p + group <= k; p += group, to += next) {
            bytes16 v = {0};
            memcpy(&v, from + p, (size_t)group);
            v ^= flip;
            memcpy(to, &v, (size_t)group);
        }
    for (; p < padded; p += group, to += next)
        for (long i = 0; i < group; i++)
            store_value(p + i < k ? from + (p + i) * k_step : NULL, to, i, form, flip);
}
#endif

#if COLUMN_FACTOR && I8_GROUP == 4
/* Correction for flipping A: factor * sum over k of each column of a panel of B. */
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
#elif EK_I8 == EK_I8_MADOT && (COLUMN_FACTOR || ROW_FACTOR)
/* Lines of either operand have groups of eight. */
static void write_corrections(const i8_value *values, long lines, long k, int factor, int32_t *to) {
    memset(to, 0, (size_t)lines * sizeof *to);
    for (long p = 0; p < i8_padded(k); p += 8)
        for (long j = 0; j < lines; j++)
            for (int i = 0; i < 8; i++)
                to[j] += *values++;
    for (long j = 0; j < lines; j++)
        to[j] *= factor;
}
#elif COLUMN_FACTOR && I8_GROUP == 8
static void write_corrections(const i8_value *values, long columns, long k, int factor,
                              int32_t *to) {
    const vi ones = vi_splat(0x01010101);
    for (long j = 0; j < columns; j += 2) {
        vi sum = {0};
        for (long p = 0; p < i8_padded(k); p += 8)
            sum = vi_dot4(sum, i8_vector(values + p * columns + j * 8), ones);
        to[j] = (sum[0] + sum[1]) * factor;
        to[j + 1] = (sum[2] + sum[3]) * factor;
    }
}
#elif COLUMN_FACTOR || ROW_FACTOR
/* Correction for flipping the other operand: factor * sum over k of each line of a panel whose
 * values are in blocks of sixteen. */
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

/* Appends the parts that follow a panel's values. */
EK_INLINE void finish_panel(i8_panel panel, long extent, long k, int factor, void *to) {
    if (factor)
        write_corrections(to, extent, k, factor, (int32_t *)((char *)to + panel.corrections));
#if HAS_WIDE
    const int32_t wide = holds_lowest(to, panel.corrections);
    memcpy((char *)to + panel.wide, &wide, sizeof wide);
#endif
}

#ifdef AMX_LEAST
/* Packs a panel for tile registers (i8_types.h). */
static void pack_a_amx(const uint8_t *from, long step, long k_step, long width, long k,
                       uint8_t *to) {
    const amx_depth d = amx_depth_of(k);
    const long bytes = 4 * d.groups;
    memset(to, 0, i8_panel_of_a(width, k).bytes);
    for (long s = 0; s < d.steps; s++) {
        const int is_last = s == d.steps - 1;
        const long first = is_last ? 4 * d.last : s * bytes;
        const uint64_t wanted = is_last ? amx_last_values(d, k) : ~(uint64_t)0;
        for (long i = 0; i < width; i++, to += bytes) {
            const uint8_t *at = from + i * step + first * k_step;
            if (k_step == 1)
                _mm512_mask_storeu_epi8(to, wanted, _mm512_maskz_loadu_epi8(wanted, at));
            else
                for (long p = 0; p < bytes; p++)
                    to[p] = wanted >> p & 1 ? at[p * k_step] : 0;
        }
    }
}
#endif

static void pack_a(const void *from, long step, long k_step, long width, long vectors, long k,
                   void *to) {
    (void)vectors;
#ifdef AMX_LEAST
    if (width >= AMX_LEAST) {
        pack_a_amx(from, step, k_step, width, k, to);
        return;
    }
#endif
#if EK_I8 == EK_I8_WIDE16
    const i8_row *rows = from;
    i8_row *at = to;
    for (long p = 0; p < k; p++)
        for (long i = 0; i < width; i++)
            *at++ = rows[i * step + p * k_step];
#else
    const uint8_t flip = A_FLIP ? FLIP_BYTE : 0;
    if (step == 1 && k_step != 1)
        pack_transposed(I8_STEP, from, k_step, width, width, width, k, to, FORM_OF_A, flip);
    else
        for (long i = 0; i < width; i++)
            pack_line((const uint8_t *)from + i * step, k_step, k, k, (i8_row *)to + i * I8_STEP,
                      I8_STEP, width, FORM_OF_A, flip);
#endif
    finish_panel(i8_panel_of_a(width, k), width, k, ROW_FACTOR, to);
}

/* Packs k rows of a panel of B with adjacent columns; `to` is the position of the first. */
EK_INLINE void pack_rows_of_b(const void *from, long k_step, long width, long columns, long k,
                              i8_value *to, int32_t *corrections) {
#ifdef EK_GROUPS4
    pack_groups(from, k_step, width, columns, columns, k, to, B_FLIP ? FLIP_BYTE : 0, COLUMN_FACTOR,
                corrections);
#elif EK_I8 == EK_I8_WIDE16
    const i8_b *values = from;
    const long there = ek_min(width, columns);
    (void)corrections;
    for (long p = 0; p < k; p++, values += k_step, to += columns) {
        memcpy(to, values, (size_t)there);
        memset(to + there, 0, (size_t)(columns - there) * sizeof *to);
    }
#else
    (void)corrections;
    pack_transposed(I8_GROUP, from, k_step, width, columns, columns, k, to, AS_BYTE,
                    B_FLIP ? FLIP_BYTE : 0);
#endif
}

#ifdef AMX_LEAST
#define WARM_VALUES 4096 /* size of B from which AMX would power down during packing */

static void pack_b_side_by_side(const void *from, long k_step, long width,
                                const ek_gemm_panels *panels, long k, void *to) {
    const i8_b *at = from;
    char *panel = to;
    const int keep_warm = panels->registers && k * width >= WARM_VALUES;
    if (keep_warm)
        amx_set_up(panels->registers, panels->rows, amx_depth_of(k).groups);
    for (long i = 0; i < panels->count;) {
        i8_strip strip;
        for (strip.vectors = 0; i < panels->count; i++) {
            const int wider = i < panels->wider;
            const long vectors = panels->vectors + wider;
            if (strip.vectors + vectors > STRIP)
                break;
            add_to_strip(&strip, panel, vectors, k);
            panel += panels->bytes[wider];
        }
        pack_strip(&strip, at, k_step, width, k, panels->values_only ? 0 : COLUMN_FACTOR,
                   keep_warm);
        at += strip.vectors * EK_VL, width -= strip.vectors * EK_VL;
    }
}
#else
#if EK_I8 == EK_I8_MULL16
/* Packs up to sixteen rows of at most `lines` columns, which are several panels of one vector,
 * `apart` bytes from one to the next. */
EK_INLINE void pack_vectors(const int lines, const uint8_t *from, long k_step, long width, long k,
                            char *to, size_t apart) {
    const uint8_t flip = B_FLIP ? FLIP_BYTE : 0;
    bytes16 rows[16];
    uint8_t block[16 / EK_VL][EK_VL * 16];
    if (k >= 16 && width >= lines)
        load_block(16, lines, rows, from, k_step, lines, 16, flip);
    else
        load_block(16, lines, rows, from, k_step, width, k, flip);
    transpose_groups16(rows, block[0]);
    for (int j = 0; j < lines / EK_VL && j * EK_VL < width; j++, to += apart)
        memcpy(to, block[j], sizeof block[j]);
}

/* Packs panels of one vector: sixteen by sixteen bytes are transposed for several at once. */
static void pack_panels_of_vectors(const uint8_t *from, long k_step, long width,
                                   const ek_gemm_panels *panels, long k, char *to) {
    const size_t apart = panels->bytes[0];
    for (long p = 0; p < k; p += 16, from += 16 * k_step) {
        char *block = to + p * EK_VL;
        for (long j = 0; j < width; j += 16, block += 16 / EK_VL * apart)
            if (width - j > 8)
                pack_vectors(16, from + j, k_step, width - j, k - p, block, apart);
            else
                pack_vectors(8, from + j, k_step, width - j, k - p, block, apart);
    }
    for (long i = 0; i < panels->count; i++, to += apart)
        finish_panel(i8_panel_of_b(EK_VL, k), EK_VL, k, COLUMN_FACTOR, to);
}
#endif

static void pack_b_side_by_side(const void *from, long k_step, long width,
                                const ek_gemm_panels *panels, long k, void *to) {
    const long slice = panels->count > 1 ? ROWS_AT_ONCE : ek_max(k, 1);
#if EK_I8 == EK_I8_MULL16
    if (panels->vectors == 1 && !panels->wider && panels->count > 1) {
        pack_panels_of_vectors(from, k_step, ek_min(width, panels->count * EK_VL), panels, k, to);
        return;
    }
#endif
    for (long p = 0; p == 0 || p < k; p += slice) {
        const i8_b *at = (const i8_b *)from + p * k_step;
        const long rows = ek_min(slice, k - p);
        char *panel = to;
        long left = width;
        for (long i = 0; i < panels->count; i++) {
            const int wider = i < panels->wider;
            const long columns = (panels->vectors + wider) * EK_VL;
            const i8_panel parts = i8_panel_of_b(columns, k);
            int32_t *corrections = (int32_t *)(panel + parts.corrections);
            if (FUSED_SUMS && COLUMN_FACTOR && p == 0)
                memset(corrections, 0, (size_t)columns * sizeof *corrections);
            pack_rows_of_b(at, k_step, left, columns, rows, (i8_value *)panel + p * columns,
                           corrections);
            if (p + slice >= k)
                finish_panel(parts, columns, k, FUSED_SUMS ? 0 : COLUMN_FACTOR, panel);
            panel += panels->bytes[wider];
            at += columns, left -= columns;
        }
    }
}
#endif

static void pack_b(const void *from, long step, long k_step, long width, long vectors, long k,
                   void *to) {
    const long columns = vectors * EK_VL;
    if (step == 1) {
        pack_b_side_by_side(from, k_step, width, &(ek_gemm_panels){.count = 1, .vectors = vectors},
                            k, to);
        return;
    }
#if EK_I8 == EK_I8_WIDE16
    const i8_b *values = from;
    i8_value *at = to;
    for (long p = 0; p < k; p++, at += columns) {
        for (long j = 0; j < width; j++)
            at[j] = values[j * step + p * k_step];
        memset(at + width, 0, (size_t)(columns - width) * sizeof *at);
    }
#else
    const uint8_t flip = B_FLIP ? FLIP_BYTE : 0;
    for (long j = 0; j < columns; j++)
        pack_line((const uint8_t *)from + j * step, k_step, j < width ? k : 0, k,
                  (i8_value *)to + j * I8_GROUP, I8_GROUP, columns, AS_BYTE, flip);
#endif
    finish_panel(i8_panel_of_b(columns, k), columns, k, COLUMN_FACTOR, to);
}

/* Panels of A with corrections or flags after their values hold the rows of exactly one tile. */
#define A_ONE_PANEL (EK_I8 != EK_I8_WIDE16 && !ROW_FACTOR && !HAS_WIDE)
#if A_ONE_PANEL
static void pack_a_one_panel(const void *from, long k_step, long width, long vectors, long rows,
                             long k, void *to) {
    const uint8_t flip = A_FLIP ? FLIP_BYTE : 0;
#ifdef EK_GROUPS4
    pack_groups(from, k_step, width, vectors * EK_VL, rows, k, to, flip, 0, NULL);
#else
    pack_transposed(I8_STEP, from, k_step, width, vectors * EK_VL, rows, k, to, FORM_OF_A, flip);
#endif
}
#endif

#ifdef EK_GROUPS4
static int pack_a_narrow(const void *from, long rows, long k, void *to) {
    return pack_narrow(from, rows, k, to, A_FLIP ? FLIP_BYTE : 0);
}
#endif

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
    return ROW_IN_PLACE && args->m == 1 && args->b_col == 1 ? 0 : -1;
}

void I8_FAMILY(_dot)(const ek_gemm_job *job, const void *a, const void *b, long b_col, void *c,
                     long count, long column);

const ek_gemm_operands I8_FAMILY() = {
    .a_bytes = 1,
    .b_bytes = 1,
    .vl = EK_VL,
    .full_k = 1,
    .masked = 1,
    .a_panel = a_panel,
    .b_panel = b_panel,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .a_form = a_form,
    .b_form = b_form,
    .pack_b_side_by_side = pack_b_side_by_side,
#if A_ONE_PANEL
    .pack_a_one_panel = pack_a_one_panel,
#ifdef EK_GROUPS4
    .pack_a_narrow = pack_a_narrow,
#endif
#endif
    .a_row_bytes = I8_STEP * sizeof(i8_row),
#ifdef AMX_LEAST
    .amx_rows = AMX_LEAST,
#endif
    .dot = I8_FAMILY(_dot),
};
