/* Register tiles of 8-bit products, NV vectors wide, for 1 .. MR rows.
 *
 * Compile-time parameters: NAME (of the table), MR, NV, EK_SIMD, TYPES and AMX_LEAST (see
 * i8_types.h); AMX_MOST: the largest number of rows of tiles that use tile registers, if any. */
#include "i8_types.h"
#if ROW_IN_PLACE
#include "i8_gemv.h"
#endif

_Static_assert(MR <= EK_GEMM_MAX_MR && NV <= EK_GEMM_MAX_NV, "the tables hold no larger tile");

/* sums += the last k % I8_STEP values of in-place rows times the end of a panel. */
#if EK_I8 == EK_I8_DOT4_US
static __attribute__((noinline, unused)) void short_rows(i8_row (*to)[4], const i8_row *a,
                                                         long a_row, long rows, long k) {
    const uint8_t *from = (const uint8_t *)a;
    const int middle = 8 * (int)(k / 2), last = 8 * (int)(k - 1);
    for (long i = 0; i < rows; i++, from += a_row) {
        const uint32_t group =
            from[0] | (uint32_t)from[k / 2] << middle | (uint32_t)from[k - 1] << last;
        memcpy(to[i], &group, sizeof group);
    }
}

/* Loads the last four values and shifts out those already counted. */
EK_INLINE void multiply_tail(const int mr, const ek_gemm_job *job, i8_rows a, const i8_row *row[MR],
                             const i8_value *b, i8_sums *sums) {
    i8_row copies[MR][4];
    const int is_short = job->k < 4;
    if (is_short)
        short_rows(copies, row[0], job->a_row, mr, job->k);
    vi counted = vi_splat(is_short ? 0 : 32 - 8 * (int32_t)(job->k % 4)), flips = vi_splat(a.flip);
    EK_OPAQUE(counted); /* otherwise the compiler shifts scalars, which costs a register transfer
                           each */
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        int32_t group;
        memcpy(&group, is_short ? copies[i] : row[i] + job->k - 4, sizeof group);
        const vi x = (vi)((vu)vi_splat(group) >> (vu)counted) ^ flips;
        EK_UNROLL
        for (int j = 0; j < NV; j++) {
            const vi of_b = i8_vector(b + j * EK_VL * I8_GROUP), sum = sums->of[i][j];
            sums->of[i][j] = B_UNSIGNED ? vi_dot4(sum, of_b, x) : vi_dot4(sum, x, of_b);
        }
    }
}
#else
#if I8_STEP == 16
/* The last `left` of 16 values that end at `end`, followed by zeros. */
EK_INLINE vi last_values(const i8_row *end, long left) {
    return vi_bytes_from(i8_vector(end - I8_STEP), I8_STEP - left);
}
#define LOADS_LAST 1
#else
#define LOADS_LAST 0
#endif
EK_INLINE void multiply_tail(const int mr, const ek_gemm_job *job, i8_rows a, const i8_row *row[MR],
                             const i8_value *b, i8_sums *sums) {
    const long left = job->k % I8_STEP;
    i8_row tail[MR][I8_STEP];
#if LOADS_LAST
    if (job->k >= I8_STEP) {
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            const vi last = last_values(row[i] + job->k, left);
            memcpy(tail[i], &last, sizeof last);
        }
    } else
#endif
    {
        EK_UNROLL
        for (int i = 0; i < mr; i++) {
            memset(tail[i], 0, sizeof tail[i]);
            ek_copy_short(tail[i], row[i] + job->k - left, left * (long)sizeof(i8_row));
        }
    }
    EK_UNROLL
    for (int i = 0; i < mr; i++)
        row[i] = tail[i];
#if EK_I8 == EK_I8_MULL16
    if (left <= I8_STEP / 2) {
        i8_half_step(mr, NV, sums, row, 0, b, vi_splat(a.flip));
        return;
    }
#endif
    i8_accumulate(mr, NV, sums, a, I8_STEP, b);
}
#endif

/* sums += rows by a panel, over `length` values of k. */
EK_INLINE const i8_value *accumulate(const int mr, const int form, i8_sums *sums, const i8_rows a,
                                     long length, const i8_value *b) {
    (void)form;
#if EK_I8 == EK_I8_MULL16 && I8_INTERLEAVED && NV == 1
    if (mr == 4 && a.narrow)
        return length ? i8_rows_out_of_order(form == EK_GEMM_PANEL, sums, a, length, NULL, b) : b;
#endif
    return i8_accumulate(mr, NV, sums, a, length, b);
}

/* sums = A . B of the tile, without corrections. */
EK_INLINE void multiply(const int mr, const int form, const int narrow, const ek_gemm_job *job,
                        const i8_row *a, const i8_value *b, i8_sums *sums) {
    const i8_row *row[MR];
    i8_clear(sums);
    if (form == EK_GEMM_PANEL) {
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            row[i] = a + i * I8_STEP;
        const i8_rows packed = {row, job->a_col * I8_STEP, 0, narrow, 0};
#if EK_I8 != EK_I8_MADOT
        if (NV > 1 && I8_NARROW(mr, NV - 1) && job->left == 1) {
            int32_t last[EK_VL];
            vi_store(last, i8_accumulate_narrow(mr, NV - 1, sums, packed, i8_padded(job->k), b));
            EK_UNROLL
            for (int i = 0; i < mr; i++)
                sums->of[i][NV - 1] = vi_splat(last[i]);
            return;
        }
#endif
        accumulate(mr, form, sums, packed, i8_padded(job->k), b);
        return;
    }
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        row[i] = a + i * job->a_row;
#ifdef __aarch64__
        __asm__(""
                : "+r"(row[i])); /* keep one register per row, instead of one that is advanced from
                                    row to row */
#endif
    }
    i8_rows in_place = {row, I8_STEP, A_FLIP ? FLIP_WORD : 0, narrow, 0};
    const long full = job->k / I8_STEP * I8_STEP;
    b = accumulate(mr, form, sums, in_place, full, b);
    if (full < job->k)
        multiply_tail(mr, job, in_place, row, b, sums);
}

/* Number of columns in the tile's vector j. */
EK_INLINE long columns_in(int j, long left) {
    return j == NV - 1 ? left : EK_VL;
}
EK_INLINE vi part_load(const int32_t *p, long columns) {
    return columns == EK_VL ? vi_load(p) : vi_load_n(p, columns);
}
EK_INLINE vf part_load_f32(const float *p, long columns) {
    return columns == EK_VL ? vf_load(p) : vf_load_n(p, columns);
}

/* Adds bias and C to one vector of sums, in the accumulator type. */
EK_INLINE void add(const ek_gemm_job *job, vi sum, int32_t *c, long row, long column,
                   long columns) {
    const ek_gemm_epilogue *e = job->epilogue;
    const int32_t *bias = e->bias;
    if (bias)
        sum =
            vi_wrap_add(sum, e->per_row ? vi_splat(bias[row]) : part_load(bias + column, columns));
    if (job->load)
        sum = vi_wrap_add(sum, part_load(c, columns));
    if (columns == EK_VL)
        vi_store(c, sum);
    else
        vi_store_n(c, sum, columns);
}

/* Converts one vector of sums to C's type. */
EK_INLINE void convert(const ek_gemm_epilogue *e, vi sum, char *c, long row, long column,
                       long columns) {
    if (e->output == EK_GEMM_FLOAT) {
        const float *bias = e->bias;
        vf scale = vf_splat(1), offset = vf_splat(0);
        if (e->scale)
            scale =
                e->per_row ? vf_splat(e->scale[row]) : part_load_f32(e->scale + column, columns);
        if (bias)
            offset = e->per_row ? vf_splat(bias[row]) : part_load_f32(bias + column, columns);
        vf v = vcast(sum, vf) * scale + offset;
        v = vf_clamp(v, vf_bound(e->low_f32), vf_bound(e->high_f32));
        if (columns == EK_VL)
            vf_store((float *)c, v);
        else
            vf_store_n((float *)c, v, columns);
        return;
    }
    const vi_factor factor = e->per_row
                                 ? (vi_factor){vi_splat(e->multiplier[row]), vi_splat(e->left[row]),
                                               vi_splat(e->right[row])}
                                 : (vi_factor){part_load(e->multiplier + column, columns),
                                               part_load(e->left + column, columns),
                                               part_load(e->right + column, columns)};
    vi v = vi_wrap_add(vi_requantize(sum, factor), vi_splat(e->zero));
    v = vi_min(vi_max(v, vi_splat(e->low)), vi_splat(e->high));
    if (columns == EK_VL)
        vi_to_bytes(c, v);
    else
        vi_to_bytes_n(c, v, columns);
}

/* Stores sums that are converted or passed on; out of line to keep tiles small. */
static __attribute__((noinline)) void finish_tile(const ek_gemm_job *job, long rows,
                                                  const int32_t *sums, char *c, long row,
                                                  long column) {
    const ek_gemm_epilogue *e = job->epilogue;
    if (e->output == EK_GEMM_CALLBACK) {
        const long columns = (NV - 1) * EK_VL + job->left;
        e->callback(e->callback_data,
                    &(ek_gemm_sums){sums, row, rows, column, columns, NV * EK_VL, job->c_row, c});
        return;
    }
    const long bytes = e->output == EK_GEMM_QUANTIZE ? 1 : 4;
    for (long i = 0; i < rows; i++, row++, c += job->c_row * bytes)
        for (int j = 0; j < NV; j++, sums += EK_VL) {
            const long at = column + j * EK_VL, columns = columns_in(j, job->left);
            vi sum = vi_load(sums);
            if (e->output == EK_GEMM_PLAIN) {
                add(job, sum, (int32_t *)c + j * EK_VL, row, at, columns);
                continue;
            }
            if (e->bias && e->output == EK_GEMM_QUANTIZE) {
                const int32_t *bias = e->bias;
                sum = vi_wrap_add(sum,
                                  e->per_row ? vi_splat(bias[row]) : part_load(bias + at, columns));
            }
            convert(e, sum, c + j * EK_VL * bytes, row, at, columns);
        }
}

/* out = A . B of the tile. */
EK_INLINE void products(const int mr, const int form, const ek_gemm_job *job, const i8_row *a,
                        const i8_value *b, vi out[MR][NV]) {
    const i8_panel panel = i8_panel_of_b(NV * EK_VL, job->k);
    const int32_t *corrections = (const int32_t *)((const char *)b + panel.corrections);
    i8_sums sums;
#if HAS_WIDE
    int32_t wide;
    memcpy(&wide, (const char *)b + panel.wide, sizeof wide);
    if (form == EK_GEMM_PANEL && wide)
        memcpy(&wide, (const char *)a + i8_panel_of_a(mr, job->k).wide, sizeof wide);
    if (wide)
        multiply(mr, form, 0, job, a, b, &sums);
    else
#endif
        multiply(mr, form, HAS_WIDE, job, a, b, &sums);
    EK_UNROLL
    for (int j = 0; j < NV; j++) {
        const vi correction = COLUMN_FACTOR ? vi_load(corrections + j * EK_VL) : (vi){0};
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            out[i][j] = vi_wrap_add(i8_sum(NV, &sums, i, j), correction);
    }
    if (ROW_FACTOR) {
        const size_t at = i8_panel_of_a(mr, job->k).corrections;
        const int32_t *of_rows = (const int32_t *)((const char *)a + at);
        EK_UNROLL
        for (int i = 0; i < mr * NV; i++)
            out[i / NV][i % NV] += of_rows[i / NV];
    }
}

/* Stores sums unconverted. */
EK_INLINE void store_sums(const int mr, const ek_gemm_job *job, vi out[MR][NV], int32_t *to) {
    const int full = job->left == EK_VL;
    EK_UNROLL
    for (int i = 0; i < mr; i++, to += job->c_row) {
        EK_UNROLL
        for (int j = 0; j < NV - 1; j++)
            vi_store(to + j * EK_VL, out[i][j]);
        if (full)
            vi_store(to + (NV - 1) * EK_VL, out[i][NV - 1]);
        else
            vi_store_n(to + (NV - 1) * EK_VL, out[i][NV - 1], job->left);
    }
}

EK_INLINE void tile(const int mr, const int form, const ek_gemm_job *job, const i8_row *a,
                    const i8_value *b, char *c, long row, long column) {
    vi out[MR][NV];
    if (job->c_row >= EK_GEMM_FAR_ROWS && job->epilogue->output == EK_GEMM_PLAIN)
        ek_gemm_prefetch_c(mr, NV * EK_VL, c, job->c_row);
#if ROW_IN_PLACE
    if (mr == 1 && job->b_in_place) {
        vi sums[ROW_BLOCKS * 4];
        multiply_row(form == EK_GEMM_PANEL, job, a, (const i8_b *)b, sums);
        memcpy(out, sums, sizeof out[0]);
    } else
#endif
        products(mr, form, job, a, b, out);
    if (job->epilogue->output == EK_GEMM_PLAIN && !job->epilogue->bias && !job->load) {
        store_sums(mr, job, out, (int32_t *)c);
        return;
    }
    int32_t sums[MR * NV * EK_VL];
    EK_UNROLL
    for (int i = 0; i < mr * NV; i++)
        vi_store(sums + i * EK_VL, out[i / NV][i % NV]);
    finish_tile(job, mr, sums, c, row, column);
}

#if EK_I8 == EK_I8_MULL16 && (I8_INTERLEAVED || (I8_SCHEDULED && MR == 4)) && NV == 1 &&           \
    !COLUMN_FACTOR && !ROW_FACTOR
#include "i8_panels_at_once.h"
#define SOME_PANELS .some_panels = some_panels,
#else
#define SOME_PANELS
#endif

#define CODE_OF(name, call)                                                                        \
    static void name(const ek_gemm_job *job, const void *a, const void *b, void *c, long row,      \
                     long column) {                                                                \
        call;                                                                                      \
    }
#define CODE(name, mr, form) CODE_OF(name, tile(mr, form, job, a, b, c, row, column))
/* Rows are read in place unless they need a correction. */
#if I8_IN_PLACE && !ROW_FACTOR
#define CODES(mr) CODE(panel_##mr, mr, EK_GEMM_PANEL) CODE(rows_##mr, mr, EK_GEMM_ROWS)
#else
#define CODES(mr) CODE(panel_##mr, mr, EK_GEMM_PANEL)
#endif
EK_GEMM_UP_TO(MR, CODES)

#ifdef AMX_MOST
#include "x86/i8_amx.h"
#define ROWS AMX_MOST
#define AMX_CODES(code) [AMX_LEAST... AMX_MOST] = (code),
#else
#define ROWS MR
#define AMX_CODES(code)
#endif

#define ENTRY_panel(mr) [mr] = panel_##mr,
#define ENTRY_rows(mr) [mr] = rows_##mr,
const ek_gemm_column NAME = {
    ROWS,
    NV,
    {
        [EK_GEMM_PANEL] = {EK_GEMM_UP_TO(MR, ENTRY_panel) AMX_CODES(amx_panel)},
#if I8_IN_PLACE && !ROW_FACTOR
        [EK_GEMM_ROWS] = {EK_GEMM_UP_TO(MR, ENTRY_rows) AMX_CODES(amx_rows)},
#endif
#if ROW_IN_PLACE
        [EK_GEMM_PANEL | EK_GEMM_MASKED] = {[1] = panel_1},
        [EK_GEMM_ROWS | EK_GEMM_MASKED] = {[1] = rows_1},
#endif
    },
    SOME_PANELS};
