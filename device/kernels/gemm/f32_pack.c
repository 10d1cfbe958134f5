/* Packing and reading of f32 operands: panels are rows of `width` floats, one row per k.
 *
 * Compile-time parameter: EK_SIMD. */
#include "microkernels.h"
#include "transpose.h"

/* Packs rows of k that are contiguous in memory. */
EK_INLINE void pack_contiguous(const float *from, long k_step, long width, long padded, long k,
                               float *to) {
    for (long p = 0; p < k; p++, from += k_step, to += padded) {
        long j = 0;
        for (; j + EK_VL <= width; j += EK_VL)
            vf_store(to + j, vf_load(from + j));
        for (; j < width; j++)
            to[j] = from[j];
    }
}

static void pack(const float *from, long step, long k_step, long width, long padded, long k,
                 float *to) {
    if (step == 1)
        pack_contiguous(from, k_step, width, padded, k, to);
    else if (k_step == 1)
        ek_transpose(from, step, width, k, to, padded);
    else
        for (long p = 0; p < k; p++)
            for (long j = 0; j < width; j++)
                to[p * padded + j] = from[j * step + p * k_step];
    for (long p = 0; p < k; p++)
        for (long j = width; j < padded; j++)
            to[p * padded + j] = 0;
}

static void pack_a(const void *from, long step, long k_step, long width, long vectors, long k,
                   void *to) {
    (void)vectors;
    pack(from, step, k_step, width, width, k, to);
}

static void pack_b(const void *from, long step, long k_step, long width, long vectors, long k,
                   void *to) {
    pack(from, step, k_step, width, vectors * EK_VL, k, to);
}

/* Rows of B that are read at once: a panel has a line or two of each, so prefetchers follow rows
 * only across panels. Those of cores in order follow one while panels are written; others follow
 * several, and complete lines of narrow panels. */
#if EK_IN_ORDER
#define ROWS_AT_ONCE 1
#else
#define ROWS_AT_ONCE 4
#endif

#if EK_IN_ORDER
/* Two rows of panels of one or two vectors are at most a cache line, which one pass writes: written
 * twice, it may be read twice from L2 or beyond. */
EK_INLINE void pack_narrow(const int nv, const int rows, const float *from, long k_step, long count,
                           size_t bytes, char *to) {
    for (long i = 0; i < count; i++, from += nv * EK_VL, to += bytes) {
        vf values[2 * 2];
        EK_UNROLL
        for (int v = 0; v < rows * nv; v++)
            values[v] = vf_load(from + v / nv * k_step + v % nv * EK_VL);
        EK_UNROLL
        for (int v = 0; v < rows * nv; v++)
            vf_store((float *)to + v * EK_VL, values[v]);
    }
}

/* `count` panels of nv vectors, the last of which may be of fewer columns. */
static void pack_two_rows(long nv, long rows, const float *from, long k_step, long width,
                          long count, size_t bytes, char *to) {
    const long columns = nv * EK_VL, whole = ek_min(count, width / columns);
    if (rows == 2 && nv == 2)
        pack_narrow(2, 2, from, k_step, whole, bytes, to);
    else if (rows == 2)
        pack_narrow(1, 2, from, k_step, whole, bytes, to);
    else if (nv == 2)
        pack_narrow(2, 1, from, k_step, whole, bytes, to);
    else
        pack_narrow(1, 1, from, k_step, whole, bytes, to);
    if (whole < count)
        pack(from + whole * columns, 1, k_step, width - whole * columns, columns, rows,
             (float *)(to + (size_t)whole * bytes));
}

static void pack_rows_in_pairs(const float *from, long k_step, long width,
                               const ek_gemm_panels *panels, long k, char *to) {
    const long vectors = panels->vectors, wide = vectors + 1;
    const long wider = ek_min(ek_max(panels->wider, 0), panels->count);
    const long columns = ek_min(wide * EK_VL * wider, width), others = panels->count - wider;
    char *const second = to + (size_t)wider * panels->bytes[1];
    for (long p = 0; p < k; p += 2, from += 2 * k_step) {
        const long rows = ek_min(2, k - p);
        float *const at = (float *)to + p * wide * EK_VL;
        float *const then = (float *)second + p * vectors * EK_VL;
        if (wider)
            pack_two_rows(wide, rows, from, k_step, columns, wider, panels->bytes[1], (char *)at);
        if (others)
            pack_two_rows(vectors, rows, from + columns, k_step, width - columns, others,
                          panels->bytes[0], (char *)then);
    }
}
#endif

static void pack_b_side_by_side(const void *from, long k_step, long width,
                                const ek_gemm_panels *panels, long k, void *to) {
#if EK_IN_ORDER
    if (panels->vectors + (panels->wider > 0) <= 2) {
        pack_rows_in_pairs(from, k_step, width, panels, k, to);
        return;
    }
#endif
    for (long p = 0; p < k; p += ROWS_AT_ONCE) {
        const float *at = (const float *)from + p * k_step;
        const long rows = ek_min(ROWS_AT_ONCE, k - p);
        char *panel = to;
        long left = width;
        for (long i = 0; i < panels->count; i++) {
            const int wider = i < panels->wider;
            const long columns = (panels->vectors + wider) * EK_VL;
            pack(at, 1, k_step, ek_min(columns, left), columns, rows, (float *)panel + p * columns);
            panel += panels->bytes[wider];
            at += columns, left -= columns;
        }
    }
}

static size_t a_panel(long rows, long k) {
    return sizeof(float) * (size_t)(rows * k);
}

static size_t b_panel(long vectors, long k) {
    return sizeof(float) * (size_t)(vectors * EK_VL * k);
}

static int a_form(const ek_gemm_args *args) {
    if (args->a_col == 1)
        return EK_GEMM_ROWS;
    return args->a_row == 1 || args->m == 1 ? EK_GEMM_PANEL : -1;
}

static int b_form(const ek_gemm_args *args) {
    return args->b_col == 1 ? 0 : -1;
}

void ek_gemm_f32_dot(const ek_gemm_job *job, const void *a, const void *b, long b_col, void *c,
                     long count, long column);

void ek_gemm_f32_row(const ek_gemm_job *job, const void *a, const void *b, void *c, long count,
                     long column);

const ek_gemm_operands ek_gemm_f32 = {
    .a_bytes = sizeof(float),
    .b_bytes = sizeof(float),
    .vl = EK_VL,
#ifdef EK_OWN_PARTIAL
    .masked = 1,
#endif
#if EK_IN_ORDER && defined __aarch64__
    .whole_rows = 8, /* of f32_in_order.h */
#endif
    .a_panel = a_panel,
    .b_panel = b_panel,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .pack_b_side_by_side = pack_b_side_by_side,
    .a_form = a_form,
    .b_form = b_form,
    .dot = ek_gemm_f32_dot,
    .row = ek_gemm_f32_row,
};
