/* Tiles of AMX_LEAST .. AMX_MOST rows and NV vectors of columns in AMX tile registers: two
 * registers of rows of A and one or two of columns of B, or one by three or four, give up to four
 * accumulators, enough to hide the latency of a product. Panels of B have the same layout as for
 * other tiles; instead of flipping A, the product has the matching signedness.
 *
 * Configuring the registers takes as long as a small tile, so tiles of more than AMX_ROWS rows use
 * full registers: the second one of A ends at the last row, and rows in both are computed twice.
 * Smaller tiles use exactly their rows. Include after i8_types.h, finish_tile. */
#ifndef EK_GEMM_I8_AMX_H
#define EK_GEMM_I8_AMX_H
#include "amx_warm.h"

#define REGISTERS_OF_A (NV <= 2 ? 2 : 1)
_Static_assert(AMX_MOST <= REGISTERS_OF_A * AMX_ROWS && NV <= 4 && EK_VL == 16, "of sums: four");

#if A_UNSIGNED
#define AMX_MULTIPLY _tile_dpbusd
#elif B_UNSIGNED
#define AMX_MULTIPLY _tile_dpbsud
#else
#define AMX_MULTIPLY _tile_dpbssd
#endif

/* One step: rows of A at `a` and, for the second register, at `lower`. */
EK_INLINE void amx_step(const uint8_t *a, const uint8_t *lower, long a_row, const i8_value *b) {
    _tile_loadd(6, b, NV * 64);
    _tile_loadd(4, a, a_row);
    AMX_MULTIPLY(0, 4, 6);
#if NV >= 2
    _tile_loadd(7, b + 64, NV * 64);
    AMX_MULTIPLY(1, 4, 7);
#endif
#if NV >= 3
    (void)lower;
    _tile_loadd(6, b + 128, NV * 64);
    AMX_MULTIPLY(2, 4, 6);
#if NV == 4
    _tile_loadd(7, b + 192, NV * 64);
    AMX_MULTIPLY(3, 4, 7);
#endif
#else
    if (lower) {
        _tile_loadd(5, lower, a_row);
        AMX_MULTIPLY(2, 5, 6);
#if NV == 2
        AMX_MULTIPLY(3, 5, 7);
#endif
    }
#endif
}

/* Prefetches lines of C that are not in L1, a few per step so that loads of the operands are not
 * delayed. Skipped for rows a multiple of a page apart, because more of them share an L1 set than
 * it has ways. A callback needs its lines later and other lines first: these go to L2. */
typedef struct {
    const int32_t *at;
    long row, left, rows; /* row stride; lines left; lines per step */
    int to_callback;
} amx_lines;

EK_INLINE amx_lines amx_lines_of(const ek_gemm_job *job, long steps, const void *c) {
    const int output = job->epilogue->output, to_callback = output == EK_GEMM_CALLBACK;
    const int paged = job->c_row * 4 % EK_GEMM_PAGE == 0;
    const int far =
        job->c_row >= EK_GEMM_FAR_ROWS && (output == EK_GEMM_PLAIN ? !paged : to_callback);
    const long rows = (job->rows + steps - 1) / steps;
    return (amx_lines){c, job->c_row, far ? job->rows : 0, rows, to_callback};
}

EK_INLINE void amx_fetch(amx_lines *lines) {
    for (long i = ek_min(lines->rows, lines->left); i; i--, lines->at += lines->row) {
        if (lines->to_callback)
            for (int j = 0; j < NV; j++)
                __builtin_prefetch(lines->at + j * EK_VL, 1, 2);
        else
            ek_gemm_prefetch_c(1, NV * EK_VL, lines->at, 0);
    }
    lines->left -= ek_min(lines->rows, lines->left);
}

/* Copies the wanted values out of 64 of each row; others are zero. */
EK_INLINE void amx_copy(uint8_t *to, const uint8_t *from, long a_row, long rows, uint64_t wanted) {
    for (long i = 0; i < rows; i++, from += a_row, to += 64)
        _mm512_store_si512(to, _mm512_maskz_loadu_epi8(wanted, from));
}

/* Rows in place. The rows of a partial step are copied, and first, so that the copies have been
 * written by the time they are read. */
EK_INLINE void amx_rows_in_place(const ek_gemm_job *job, amx_depth d, const uint8_t *a,
                                 const i8_value *b, amx_lines lines) {
    uint8_t copies[AMX_MOST * 64] __attribute__((aligned(64)));
    const long step = 4 * d.groups, a_row = job->a_row, rows = job->rows, second = rows - AMX_ROWS;
    const int part = job->k % step != 0;
    if (part)
        amx_copy(copies, a + 4 * d.last, a_row, rows, amx_last_values(d, job->k));
    for (long s = 0; s < d.steps - part; s++) {
        const uint8_t *at = a + s * step;
        amx_fetch(&lines);
        amx_step(at, second > 0 ? at + second * a_row : NULL, a_row, b + s * step * NV * EK_VL);
    }
    if (!part)
        return;
    amx_fetch(&lines);
    amx_step(copies, second > 0 ? copies + second * 64 : NULL, 64, b + 4 * d.last * NV * EK_VL);
}

EK_INLINE void amx_panel_of_rows(const ek_gemm_job *job, amx_depth d, const uint8_t *a,
                                 const i8_value *b, amx_lines lines) {
    const long step = 4 * d.groups, second = job->rows - AMX_ROWS;
    for (long s = 0; s < d.steps; s++, a += job->rows * step) {
        const long from = s == d.steps - 1 ? 4 * d.last : s * step;
        amx_fetch(&lines);
        amx_step(a, second > 0 ? a + second * step : NULL, step, b + from * NV * EK_VL);
    }
}

/* Stores the sums of vector j, whose first row goes to `to`, with a row stride of `row_bytes`. */
EK_INLINE void amx_store(const int j, char *to, long second, long row_bytes) {
    if (j == 0)
        _tile_stored(0, to, row_bytes);
    else if (j == 1)
        _tile_stored(1, to, row_bytes);
    else if (j == 2)
        _tile_stored(2, to, row_bytes);
    else
        _tile_stored(3, to, row_bytes);
    if (REGISTERS_OF_A < 2 || second <= 0)
        return;
    to += second * row_bytes;
    if (j)
        _tile_stored(3, to, row_bytes);
    else
        _tile_stored(2, to, row_bytes);
}

/* Stores sums unconverted. */
EK_INLINE void amx_store_sums(const ek_gemm_job *job, int32_t *c) {
    const long second = job->rows - AMX_ROWS, columns = job->left;
    EK_UNROLL
    for (int j = 0; j < NV; j++) {
        if (j == NV - 1 && columns < EK_VL)
            break;
        amx_store(j, (char *)(c + j * EK_VL), second, job->c_row * 4);
    }
    if (columns == EK_VL)
        return;
    int32_t part[AMX_MOST * EK_VL] __attribute__((aligned(64)));
    amx_store(NV - 1, (char *)part, second, EK_VL * 4);
    c += (NV - 1) * EK_VL;
    for (long i = 0; i < job->rows; i++, c += job->c_row)
        vi_store_n(c, vi_load(part + i * EK_VL), columns);
}

EK_INLINE void amx_tile(const int form, const ek_gemm_job *job, const void *a, const i8_value *b,
                        char *c, long row, long column) {
    const amx_depth d = amx_depth_of(job->k);
    const amx_lines lines = amx_lines_of(job, ek_max(d.steps, 1), c);
    const int plain = job->epilogue->output == EK_GEMM_PLAIN;
    amx_set_up(job->registers, job->rows, d.groups);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (form == EK_GEMM_PANEL)
        amx_panel_of_rows(job, d, a, b, lines);
    else if (d.steps)
        amx_rows_in_place(job, d, a, b, lines);
    if (plain && !job->epilogue->bias && !job->load) {
        amx_store_sums(job, (int32_t *)c);
        return;
    }
    int32_t sums[AMX_MOST * NV * EK_VL] __attribute__((aligned(64)));
    EK_UNROLL
    for (int j = 0; j < NV; j++)
        amx_store(j, (char *)(sums + j * EK_VL), job->rows - AMX_ROWS, NV * EK_VL * 4);
    finish_tile(job, job->rows, sums, c, row, column);
}

CODE_OF(amx_panel, amx_tile(EK_GEMM_PANEL, job, a, b, c, row, column))
CODE_OF(amx_rows, amx_tile(EK_GEMM_ROWS, job, a, b, c, row, column))
#endif
