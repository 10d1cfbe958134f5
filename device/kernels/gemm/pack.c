/* Operands packed once, ahead of all products, into the loop nest's panels: all of one block of k
 * before the next. */
#include "plan.h"

typedef struct {
    ek_gemm_side side;
    ek_depths depths;
} packed;

static packed packed_of(int dtype, int side, long extent, long k, const ek_gemm_method *how) {
    ek_gemm_args args = {.dtype = dtype, .m = extent, .n = extent, .k = k, .c_col = 1};
    ek_gemm_plan plan;
    args.a_packed = args.b_packed = 1; /* if either is packed, the method fixes the order of
                                          operands */
    ek_gemm_make_plan(&plan, &args, how, 1);
    const int is_b = side ^ ek_gemm_is_transposed(ek_gemm_families[dtype], how->mr, how->nr);
    return (packed){is_b ? plan.b : plan.a, plan.depths};
}

size_t ek_gemm_packed_bytes(int dtype, int side, long extent, long k, const ek_gemm_method *how) {
    const packed p = packed_of(dtype, side, extent, k, how);
    size_t bytes = 0;
    for (long d = 0; d < p.depths.count; d++) {
        ek_panel_sizes sizes = ek_panel_sizes_of(&p.side, ek_depth_at(&p.depths, k, d));
        bytes += ek_panels_bytes(&p.side, &sizes, 0, p.side.panels.panels);
    }
    return bytes;
}

void ek_gemm_pack(int dtype, int side, long extent, long k, const ek_gemm_method *how,
                  const void *from, long row, long col, void *to) {
    const packed p = packed_of(dtype, side, extent, k, how);
    const ek_gemm_operands *types = p.side.types;
    const long step = side ? col : row, k_step = side ? row : col;
    const long unit = p.side.side ? types->vl : 1;
    const long bytes = p.side.side ? types->b_bytes : types->a_bytes;
    char *at = to;
    for (long d = 0; d < p.depths.count; d++) {
        const long depth = ek_depth_at(&p.depths, k, d);
        for (long i = 0; i < p.side.panels.panels; i++) {
            const long start = ek_panel_start(&p.side.panels, i) * unit;
            const long width = ek_panel_width(&p.side.panels, i);
            const char *source =
                (const char *)from + (start * step + d * p.depths.depth * k_step) * bytes;
            (p.side.side ? types->pack_b : types->pack_a)(
                source, step, k_step, ek_min(width * unit, extent - start), width, depth, at);
            at += ek_panel_bytes(&p.side, width, depth);
        }
    }
}
