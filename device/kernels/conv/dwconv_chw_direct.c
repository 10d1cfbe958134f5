/* 3x3 depthwise convolution, channels first, for cores with long vectors and masked loads.
 *
 * Compile-time parameters: NAME, EK_SIMD (of 16 lanes), SW (1 or 2), LEFT (columns of padding
 * before the image: 0 or 1), CLAMP (0: low and high are infinite). Vectors run along rows and are
 * read in place: columns of padding are shifted in, rows of padding read a zero line. The left and
 * right taps are shifted out of neighboring vectors because a load that straddles cache lines
 * counts twice. Several output rows are computed at once and share each load. */
#include "dwconv_chw_taps.h"

#define ROWS EK_DWCONV_CHW_DIRECT_ROWS
#define INPUT_ROWS(rows) (((rows) - 1) * SW + 3) /* rows of x read for `rows` rows of y */
#define SPAN (EK_VL * SW)                        /* columns of x per vector of y */

#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31

/* Keeps compilers from computing line addresses and masks in vector registers, which is far
 * slower. */
#define HIDDEN(v) __asm__("" : "+r"(v))

#define OWN(v) (*(volatile const __typeof__(v) *)&(v))

static const float zeros[4 * SPAN];

/* Addresses of a column of vectors. */
typedef struct {
    const float *x; /* at row 0 of the image */
    float *y;       /* at row 0 */
    long w, h, ow, top;
    unsigned mask[2], next; /* lanes of the x vectors under one y vector, and of the following
                               vector */
    unsigned made;          /* lanes of y to store */
} place;

/* Copies, because stores to y might alias the originals. */
typedef struct {
    place at;
    vf bias, low, high, tap[9];
} strip;

/* The three taps of a line. `left`, `right`: whether the image continues there. */
EK_INLINE void load_taps(const float *line, const strip *s, vf *tap, const int left,
                         const int right) {
    const vf none = {0};
    vf a = vf_load_masked(line, s->at.mask[0]);
#if SW == 2
    vf b = vf_load_masked(line + EK_VL, s->at.mask[1]);
    vf even = __builtin_shufflevector(a, b, EVEN), odd = __builtin_shufflevector(a, b, ODD);
#else
    vf even = a, odd = a;
#endif
#if LEFT
    vf before = left ? vf_load(line - EK_VL) : none;
    tap[0] = vf_later(before, odd);
    tap[1] = even;
#else
    (void)left;
    tap[0] = even;
#endif
#if SW == 2 && LEFT
    (void)right;
    tap[2] = odd;
#else
    vf after = right ? vf_load_masked(line + SPAN, s->at.next) : none;
#if SW == 2
    tap[1] = odd;
#endif
    tap[2] = vf_earlier(even, after);
#endif
}

/* `rows` vectors starting at row oy; `edge`: some of their lines may be padding. */
EK_INLINE void vectors(const strip *s, long oy, const int rows, const int edge, const int left,
                       const int right) {
    const long iy = oy * SW - s->at.top;
    const float *here = s->at.x + iy * s->at.w;
    vf sum[ROWS];
    EK_UNROLL for (int o = 0; o < rows; o++) sum[o] = s->bias;
    EK_UNROLL for (int r = 0; r < INPUT_ROWS(rows); r++) {
        const float *line = here;
        if (edge)
            line = (unsigned long)(iy + r) < (unsigned long)s->at.h ? line : zeros + SPAN;
        here += s->at.w;
        HIDDEN(here);
        vf tap[3];
        load_taps(line, s, tap, left, right);
        EK_UNROLL for (int kx = 0; kx < 3; kx++) {
            EK_UNROLL for (int o = 0; o < rows; o++) {
                if (r - o * SW >= 0 && r - o * SW < 3)
                    sum[o] = vf_fma(tap[kx], s->tap[(r - o * SW) * 3 + kx], sum[o]);
            }
        }
    }
    float *y = s->at.y + oy * s->at.ow;
    EK_UNROLL for (int o = 0; o < rows; o++, y += s->at.ow) {
        HIDDEN(y);
#if CLAMP
        sum[o] = vf_clamp(sum[o], s->low, s->high);
#endif
        vf_store_masked(y, sum[o], s->at.made);
    }
}

EK_INLINE void down(const ek_dwconv_chw_args *a, const place *p, long channel, long oy, long end,
                    const int left, const int right) {
    strip s = {.at = {OWN(p->x),
                      OWN(p->y),
                      OWN(p->w),
                      OWN(p->h),
                      OWN(p->ow),
                      OWN(p->top),
                      {OWN(p->mask[0]), OWN(p->mask[1])},
                      OWN(p->next),
                      OWN(p->made)}};
    s.bias = vf_splat(a->bias[channel]), s.low = vf_splat(a->low), s.high = vf_splat(a->high);
    float held[9 + EK_VL];
    const float *taps = taps_of(a, channel, 9, held);
    EK_UNROLL for (int t = 0; t < 9; t++) s.tap[t] = vf_splat(taps[t]);
    for (; oy + ROWS <= end; oy += ROWS) {
        const long iy = oy * SW - s.at.top;
        if (iy >= 0 && iy + INPUT_ROWS(ROWS) <= s.at.h)
            vectors(&s, oy, ROWS, 0, left, right);
        else
            vectors(&s, oy, ROWS, 1, left, right);
    }
    for (; oy + 2 <= end; oy += 2)
        vectors(&s, oy, 2, 1, left, right);
    if (oy < end)
        vectors(&s, oy, 1, 1, left, right);
}

/* Separate functions, so that each has its own register allocation. */
#define DOWN(name, left, right)                                                                    \
    static __attribute__((noinline)) void name(const ek_dwconv_chw_args *a, const place *p,        \
                                               long channel, long oy, long end) {                  \
        down(a, p, channel, oy, end, left, right);                                                 \
    }
DOWN(only, 0, 0)
DOWN(first, 0, 1)
DOWN(middle, 1, 1)
DOWN(last, 1, 0)

/* Mask of the first n lanes, n clamped to [0, EK_VL]. */
EK_INLINE unsigned lanes(long n) {
    unsigned mask = (1u << ek_max(ek_min(n, EK_VL), 0)) - 1;
    return mask;
}

EK_INLINE void band(const ek_dwconv_chw_args *a, long plane, long channel, long oy, long end) {
    const ek_window *g = &a->win;
    place p;
    p.w = g->w, p.h = g->h, p.ow = g->ow, p.top = g->top;
    p.x = a->x + plane * p.h * p.w, p.y = a->y + plane * g->oh * p.ow;
    for (long ox = 0; ox < p.ow; ox += EK_VL, p.x += SPAN, p.y += EK_VL) {
        const long rest = p.w - ox * SW;
        const int right = rest > SPAN;
        p.mask[0] = lanes(rest), p.mask[1] = lanes(rest - EK_VL);
        p.next = lanes(rest - SPAN), p.made = lanes(p.ow - ox);
        if (right)
            (ox ? middle : first)(a, &p, channel, oy, end);
        else
            (ox ? last : only)(a, &p, channel, oy, end);
    }
}

/* Task: one band of a plane. */
void NAME(const void *args, long begin, long end) {
    const ek_dwconv_chw_args *a = args;
    long plane = begin / a->bands, part = begin % a->bands, channel = plane % a->win.c;
    for (long t = begin; t < end; t++) {
        const long first = part * a->band;
        band(a, plane, channel, first, ek_min(first + a->band, a->win.oh));
        if (++part == a->bands) {
            part = 0, plane++;
            channel = channel + 1 == a->win.c ? 0 : channel + 1;
        }
    }
}
