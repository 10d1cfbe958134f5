/* Converts NHWC to groups of 32 channels, runs the NNA, and requantizes sums to bytes. Parameters:
 * NAME, EK_SIMD. */
#include "layer.h"

#define CHANNELS EK_NNA_CHANNELS

/* Fills the padded image, or for EK_NNA_POINTS only the pixels that the stride selects. */
static void fill_image(const ek_nna_layer_args *l) {
    const ek_window *g = &l->win;
    const long sy = l->form == EK_NNA_POINTS ? g->sh : 1, sx = l->form == EK_NNA_POINTS ? g->sw : 1;
    memset(l->image, l->x_zero, (size_t)(l->in_groups * l->height * l->width * CHANNELS));
    for (long group = 0; group < l->in_groups; group++) {
        const long first = group * CHANNELS, count = ek_min(CHANNELS, g->c - first);
        for (long y = 0; y < l->height; y++)
            for (long x = 0; x < l->width; x++) {
                const long iy = y * sy - g->top, ix = x * sx - g->left;
                int8_t *to = l->image + ((group * l->height + y) * l->width + x) * CHANNELS;
                if (iy >= 0 && iy < g->h && ix >= 0 && ix < g->w)
                    memcpy(to, l->x + (iy * g->w + ix) * g->c + first, (size_t)count);
            }
    }
}

static void write_pixels(const ek_nna_layer_args *l) {
    const ek_window *g = &l->win;
    const long pixels = (long)g->oh * g->ow;
    for (long group = 0; group < l->out_groups; group++) {
        const long first = group * CHANNELS, count = ek_min(CHANNELS, g->oc - first);
        for (long p = 0; p < pixels; p++) {
            const int32_t *sums = l->sums + (group * pixels + p) * CHANNELS;
            int8_t bytes[CHANNELS];
            for (long c = 0; c < CHANNELS; c += EK_VL) {
                const long at = first + c;
                vi v = vi_wrap_add(vi_load(sums + c), vi_load(l->bias + at));
                v = l->once
                        ? vi_requantize_once(v, vi_load(l->multiplier + at), vi_load(l->right + at))
                        : vi_requantize(v, vi_factor_at(l->multiplier, l->left, l->right, at));
                v = vi_min(vi_max(v + l->y_zero, vi_splat(l->low)), vi_splat(l->high));
                vi_to_bytes(bytes + c, v);
            }
            memcpy(l->y + p * g->oc + first, bytes, (size_t)count);
        }
    }
}

static void multiply(const ek_nna_layer_args *l, ek_nna_report *report) {
    if (l->form == EK_NNA_POINTS) {
        const ek_nna_pointwise_args points = {.points = l->height * l->width,
                                              .in_groups = l->in_groups,
                                              .out_groups = l->out_groups,
                                              .x = l->image,
                                              .w = l->w,
                                              .sums = l->sums};
        ek_nna_pointwise(&l->chip, &points, report);
        return;
    }
    const ek_nna_conv_args conv = {.in_groups = l->in_groups,
                                   .height = l->height,
                                   .width = l->width,
                                   .out_groups = l->out_groups,
                                   .out_height = l->win.oh,
                                   .out_width = l->win.ow,
                                   .stride = l->win.sh,
                                   .depthwise = l->form == EK_NNA_DIAGONAL,
                                   .x = l->image,
                                   .w = l->w,
                                   .sums = l->sums};
    ek_nna_conv(&l->chip, &conv, report);
}

/* The chip has a single array, so threads share nothing. */
void NAME(const void *args, ek_pool *pool) {
    const ek_nna_layer_args *l = args;
    (void)pool;
    fill_image(l);
    ek_nna_report report = {0};
    multiply(l, &report);
    write_pixels(l);
}
