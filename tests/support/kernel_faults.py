"""Faults to inject into kernels, by family; a health check of a model using them must fail.

Each is a change of a kernel's text; the test fails if that text no longer exists.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Replaces `old` by `new` in `file`; `run` is the argument of golden_runs.with_golden."""

    name: str
    run: str
    file: str
    old: str
    new: str


_FACE, _SELFIE = "face_detection_short_range.tflite", "selfie_segmentation.tflite"
_HAND, _SPARSE = "hand_landmark_lite.tflite", "face_detection_full_range_sparse.tflite"
_POSE, _FULL = "pose_detection.tflite", "face_detection_full_range.tflite"

_F32_CONV, _F32_FINISH, _I8_CONV = "conv/f32_conv.c", "conv/f32_finish.h", "conv/i8_conv.c"
_DEPTHWISE, _EXP_VECTOR = "conv/dwconv.c", "elementwise/exp_vector.h"
_BIAS = "vf_load((const elem *)a->bias + channel + j * EK_VL)"
_CLAMP = "v = vf_clamp(v, low, high);"
_TAPS = "if (ky >= 0 && ky < KH && kx >= 0 && kx < KW)"
_LAST_COLUMNS = "for (; ox < until; ox++, move(rows, b, &at, 1))"
_NEIGHBORS = "tl[c] * wtl + bl[c] * wbl + tr[c] * wtr + br[c] * wbr"
_ROUND = "s = s > 0 ? (s + n / 2) / n : (s - n / 2) / n;"

FAULTS = (
    Fault("bias_of_channel_0", _FACE, _F32_CONV, _BIAS, "vf_splat(*(const elem *)a->bias)"),
    Fault("no_lower_bound", _FACE, _F32_FINISH, _CLAMP, "v = vf_min(v, high);"),
    Fault("no_upper_bound", "conv_f32", _F32_FINISH, _CLAMP, "v = vf_max(v, low);"),
    Fault(
        "window_row_dropped", _FACE, _F32_CONV,
        "for (long s = 0; s < rows->count; s++) {\n        const elem *x[MR];",
        "for (long s = 0; s < rows->count - (rows->count > 1); s++) {\n        const elem *x[MR];",
    ),
    Fault(
        "last_channel_dropped", _FACE, _F32_FINISH,
        "vf_store_n(y, v, left);", "vf_store_n(y, v, left - 1);",
    ),
    Fault(
        "one_product_of_the_border", _FACE, "conv/rows.h",
        "ix + last * (long)g->sw", "ix + (last - 1) * (long)g->sw",
    ),
    Fault(
        "sums_not_biased", "conv_8bit", _I8_CONV,
        "        sum += bias;", "        sum += 0;",
    ),
    Fault(
        "zero_point_not_added", "conv_8bit", "conv/i8_finish.h",
        "scaled(o, sum) + ADDED_ZERO(a)", "scaled(o, sum)",
    ),
    Fault(
        "hybrid_scale_of_first_row", "conv_hybrid", _I8_CONV,
        "const vf scale = vf_load(a->scale + channel);",
        "const vf scale = vf_splat(a->scale[0] * 1.05f);",
    ),
    Fault("tap_dropped", _FACE, _DEPTHWISE, _TAPS, _TAPS.replace("kx < KW)", "kx < KW - 1)")),
    Fault(
        "tap_dropped_8bit", "depthwise_8bit", _DEPTHWISE, _TAPS,
        _TAPS.replace("ky < KH", "ky < KH - 1"),
    ),
    Fault("last_column_not_made", _FACE, _DEPTHWISE, _LAST_COLUMNS, _LAST_COLUMNS.replace(
        "ox < until;", "ox < until - 1;")),
    Fault("bias_dropped", "depthwise_f32", _DEPTHWISE,
          "bias_at(a, c + i % blocks * BLOCK);", "bias_at(a, c) - bias_at(a, c);"),
    Fault("pixel_of_pool", _FACE, "pool/pool.c", "ek_min(ix + g->kw, g->w)",
          "ek_min(ix + g->kw - 1, g->w)"),
    Fault("pool_rounds_down", "pool", "pool/pool.c", _ROUND, "s = s / n;"),
    Fault("mean_of_one_less", _HAND, "reduce/f32_mean.c", "sum[i] / (float)reduced",
          "(sum[i] - x[i - inner]) / (float)reduced"),
    Fault("sum_without_tail", "softmax", "reduce/f32_softmax.c",
          "add(total, v[0]);", ""),
    Fault("norm_without_epsilon", "layer_norm", "reduce/layer_norm.c",
          "m.variance + a->epsilon", "m.variance * (float)n / (float)(n - 1)"),
    Fault("logistic_of_minus_x", _HAND, "elementwise/activations.h",
          "ek_bounded(x, -EK_EDGE, 20.0f)",
          "-ek_bounded(x, -EK_EDGE, 20.0f)"),
    Fault("scale_of_product", _SELFIE, "elementwise/binary.c", "TX v = a * b;",
          "float v = a * b * 1.001f;"),
    Fault("tail_not_added", _FULL, "elementwise/binary.c",
          "for (long i = 0; i < n; i++)\n            y[i] = combine(&g, a[i], b[i]);",
          "for (long i = 0; i < n - 1; i++)\n            y[i] = combine(&g, a[i], b[i]);"),
    Fault("neighbors_swapped", _SELFIE, "layout/resize.c", _NEIGHBORS,
          _NEIGHBORS.replace("bl[c] * wbl + tr[c] * wtr", "tr[c] * wbl + bl[c] * wtr")),
    Fault("last_element_not_copied", _FACE, "layout/copy.c", "for (long m = 0; m < n; m++)\n"
          "            move(y + m * y_stride, x + m * x_stride, run);",
          "for (long m = 0; m < n - (n > 1); m++)\n"
          "            move(y + m * y_stride, x + m * x_stride, run);"),
    Fault("last_lines_of_one_before", "transpose", "layout/transpose.c",
          "ek_transpose(x + i * step + j, step, end - i,",
          "ek_transpose(x + (i - (i > 0)) * step + j, step, end - i,"),
    Fault("product_shortened", "matmul", "product/matmul.c", "(f32_columns){b, g->n, left}, g->k);",
          "(f32_columns){b, g->n, left}, g->k - 1);"),
    Fault("non_zero_of_other_row", _SPARSE, "sparse/spmm_pairs.h",
          "add_column(column_of(t, SECOND_COLUMN(*word)), w1, b, nv, end);",
          "add_column(column_of(t, SECOND_COLUMN(*word)), w0, b, nv, end);"),
    Fault("chain_reads_one_row_below", _HAND, "conv/chain.c",
          "depthwise.win.top = (int)(g->top - oy * g->sh);",
          "depthwise.win.top = (int)(g->top - (oy + (oy > 0)) * g->sh);"),
    Fault("outlier_row_scale", "outlier_layer", _I8_CONV,
          "vf v = vcast(sum, vf) * scale + o->bias;", "vf v = vcast(sum, vf) * scale;"),
    Fault("index_of_neighbor", "picking", "layout/gather.c",
          "(t / a->count * a->size + at)", "(t / a->count * a->size + ek_max(at - 1, 0))"),
    Fault("total_without_tail", "totals", "reduce/total.c",
          "k < ek_min(RUN, a->reduced - r);", "k < ek_min(RUN, a->reduced - r) - 1;"),
    Fault("step_of_k_dropped", "dense_f32", _F32_CONV,
          "acc, x, columns, rows->length)", "acc, x, columns, rows->length - 1)"),
    Fault("residual_of_first_pixel", "conv_f32", _F32_FINISH,
          "residual += a->residual_pitch;", "residual += 0 * a->residual_pitch;"),
    Fault("top_padding_off_by_one", "conv_f32", "conv/rows.h",
          "- g->top", "- g->top + (g->top > 0)"),
    Fault("column_padding_off_by_one", "depthwise_f32", _DEPTHWISE,
          "(ox + i) * g->sw - g->left,", "(ox + i) * g->sw - g->left + 1,"),
    Fault("blocks_of_channels_by_the_same_weights", "depthwise_f32", _DEPTHWISE,
          "w + (j * taps + t) * BLOCK", "w + t * BLOCK"),
    Fault("zero_point_ignored", "mean", "reduce/i8_mean.c", "a->x_zero * (int32_t)a->reduced", "0"),
    Fault("term_of_exp", "softmax", _EXP_VECTOR, "0.24022648f", "0.25022648f"),
    Fault("log2e_rounded", "softmax", _EXP_VECTOR, "1.44269502f", "1.443f"),
    Fault("term_of_tanh", "curves", "elementwise/activations.h", "above + 2.0f", "above + 2.001f"),
    Fault("term_of_erf", "curves", "elementwise/activations.h", "1.1283791065216064f",
          "1.1285f"),
    Fault("hard_swish_of_5", "unary", "elementwise/functions.h", "ek_clamp(a + 3.0f, 6.0f)",
          "ek_clamp(a + 3.0f, 5.0f)"),
    Fault("slope_of_channel_0", "conv_f32", "conv/epilogue.h",
          "vf_load((const ek_real *)e->operand + channel)",
          "vf_splat(*(const ek_real *)e->operand)"),
    Fault("operands_swapped", "operands", "elementwise/functions.h", "BINARY(a - b)",
          "BINARY(b - a)"),
    Fault("zero_points_ignored", "binary", "elementwise/linear_sum.c",
          "low + g->addend_high", "low"),
    Fault("one_newton_step", "softmax", "reduce/reciprocal.h", "i < 3; i++", "i < 1; i++"),
    Fault("halves_cut_off", "convert", "elementwise/quantize.c",
          "return vi_nearest(x);", "return vi_from_integral(x);"),
    Fault("zero_point_of_first_channels", "dynamic", "elementwise/dynamic_quantize.c",
          "c < g->channels; c++", "c < 1; c++"),
    Fault("weights_zero_of_channel_0", "dynamic", "conv/i8_conv.c",
          "vi_load(a->w_zeros + channel)", "vi_splat(a->w_zeros[0])"),
    Fault("range_without_tail", "dynamic", "elementwise/range.h",
          "*high = x[i] > *high ? x[i] : *high;", ""),
    Fault("scale_of_first_lanes", "conv_hybrid", "elementwise/range.h",
          "l < EK_VL; l++", "l < EK_VL / 2; l++"),
    Fault("scale_of_first_chunk", "conv_hybrid", "elementwise/quantize.c",
          "(g->n + EK_UNARY_CHUNK - 1) / EK_UNARY_CHUNK", "1"),
    Fault("variance_around_first", "layer_norm", "reduce/layer_norm.c",
          "sum_of(x, n, mean, 1)", "sum_of(x, n, x[0], 1)"),
    Fault("corners_for_centers", "resize", "layout/resize.c",
          "((float)i + 0.5f) * a->scale - 0.5f", "(float)i * a->scale"),
    Fault("overlap_of_sum", "detections", "detection/output.c",
          "float both = sum - shared;", "float both = sum;"),
    Fault("tail_of_gates", "lstm", "recurrent/layer.c",
          "for (long j = 0; j < n; j++) {\n        float i",
          "for (long j = 0; j < n - 1; j++) {\n        float i"),
    Fault("state_before_reset", "recurrent", "recurrent/layer.c", "g.gate[1]) * state[j]);",
          "g.gate[1]));"),
    Fault("states_not_shifted", "recurrent_8bit", "recurrent/quantized_svdf.c",
          "g->before + at + 1", "g->before + at"),
    Fault("gates_of_quantized_cut_off", "recurrent_8bit", "recurrent/fixed16.h",
          "(product < 0 ? 1 - (1 << 14) : 1 << 14)", "0"),
    Fault("gate_slightly_wrong", "lstm", "elementwise/exp.h", "0.16666521f", "1.7e-1f"),
    Fault("neighbor_above_ignored", "poses", "detection/poses.c", "dy = y > 0 ? -1 : 0",
          "dy = 0"),
    Fault("edges_one_way", "poses", "detection/poses.c", "forward ? e : e + 2 * EK_EDGES", "e"),
    Fault("products_cut_off", "fixed_fourier", "signal/fourier.c",
          "product + ((TW)1 << (BITS - 1))", "product"),
    Fault("last_fifth_not_turned", "float_fourier", "signal/f32_fourier.c",
          "mid1_r - turn1_i, mid1_i + turn1_r", "mid1_r - turn1_i, mid1_i - turn1_r"),
    Fault("upper_half_not_mirrored", "float_fourier", "signal/f32_fourier.c",
          "to.re[i] = -to.re[g->points - i]", "to.re[i] = to.re[g->points - i]"),
    Fault("one_bit_at_most", "auto_scale", "signal/auto_scale.c", "= 1 << bits;",
          "= 1 << (bits > 0);"),
    Fault("gain_of_other_noise", "channels", "signal/channels.c", "4 * length - 6",
          "4 * length - 7"),
    Fault("logarithm_cut_off", "channels", "signal/channels.c", "log2 + (1 << 15)", "log2"),
    Fault("root_cut_off", "channels", "elementwise/functions.h",
          "(x > root && root != UINT16_MAX && root != UINT32_MAX)", "0"),
    Fault("products_of_first_keys_lost", "viewed_matmul", "product/packed.c",
          "p.is_first = from == 0;", "p.is_first = 1;"),
    Fault("last_of_a_dot_product", "viewed_matmul", "product/streamed.c",
          "for (; p < g->k; p++) {", "for (; p < g->k - 1; p++) {"),
    Fault("last_of_added_rows", "viewed_matmul", "product/streamed.c",
          "for (; p < g->k; p++)\n        rows(1", "for (; p < g->k - 1; p++)\n        rows(1"),
    Fault("products_of_last_keys", "attention", "product/matmul.c",
          "if (j < g->n)\n        tile(mr, 1, 1", "if (j < g->n - 1)\n        tile(mr, 1, 1"),
    Fault("probabilities_not_normal", "attention", "reduce/f32_softmax.c",
          "y[i] = y[i] * share;", "y[i] = y[i] * (share * 1.001f);"),
)  # fmt: skip
