/* A row by 4-bit weights that are unpacked in registers: add_groups of i8_groups.h for weights as
 * gemm/i4_unpack.h has them. The low halves of a panel's bytes are the first half of its groups, so
 * two groups are multiplied at a time; if their number is odd, two halves of groups.
 *
 * Values are 8 too large where 8 times the sum of x is subtracted once per group (I4_OFFSET). */
#ifndef EK_CONV_I4_ROW_H
#define EK_CONV_I4_ROW_H

#if EK_I8 == EK_I8_WIDE16
#define I4_OFFSET 0
#define I4_BYTES (2 * EK_VL)
#else
#define I4_OFFSET 8
#define I4_BYTES 16
#endif
typedef uint8_t i4_bytes __attribute__((vector_size(I4_BYTES)));

/* The values of a vector of bytes: of the first half of the groups, and of the second. */
typedef struct {
    i4_bytes of[2];
} i4_pair;

EK_INLINE i4_pair i4_pair_of(i4_bytes both) {
    return (i4_pair){{(both & 15) - (8 - I4_OFFSET), (both >> 4) - (8 - I4_OFFSET)}};
}

EK_INLINE i4_pair i4_pair_at(const uint8_t *w) {
    i4_bytes both;
    memcpy(&both, w, sizeof both);
    return i4_pair_of(both);
}

/* Sums of a unit: half of a group, or all of it. */
#if EK_I8 == EK_I8_DOT4_SS
typedef struct {
    vi of[NV], x;
} i4_sums;

EK_INLINE void i4_step(const int nv, i4_sums s[2], const i8_row *const x[2], long p,
                       const uint8_t *w) {
    vi of_x[2];
    EK_UNROLL
    for (int h = 0; h < 2; h++) {
        of_x[h] = i8_vector(x[h] + p);
        s[h].x = vi_dot4(s[h].x, of_x[h], vi_splat(0x01010101));
    }
    EK_UNROLL
    for (int l = 0; l < EK_VL; l++) {
        EK_UNROLL
        for (int j = 0; j < nv; j++) {
            const i4_pair pair = i4_pair_at(w + (l * nv + j) * I4_BYTES);
            EK_UNROLL
            for (int h = 0; h < 2; h++)
                s[h].of[j] = vi_dot4(s[h].of[j], vi_splat(of_x[h][l]), (vi)pair.of[h]);
        }
    }
}

EK_INLINE vi i4_sum(const i4_sums *s, const int j) {
    return s->of[j] - vi_splat(I4_OFFSET * (s->x[0] + s->x[1] + s->x[2] + s->x[3]));
}
#elif EK_I8 == EK_I8_MULL16
_Static_assert(GROUPS <= 128, "16 products of -127..127 and 0..15 fit 16 bits");
typedef struct {
    vi_short of[NV * EK_VL], x;
} i4_sums;

EK_INLINE void i4_step(const int nv, i4_sums s[2], const i8_row *const x[2], long p,
                       const uint8_t *w) {
    const vi of_x[2] = {i8_vector(x[0] + p), i8_vector(x[1] + p)};
    EK_UNROLL
    for (int part = 0; part < 4; part++) /* halves of vectors of both streams */
        s[part / 2].x = vi_mlal8(s[part / 2].x, of_x[part / 2], vi_splat(0x01010101), part % 2);
    EK_UNROLL
    for (int j = 0; j < nv * EK_VL; j++) {
        const i4_pair pair = i4_pair_at(w + j * I4_BYTES);
        EK_UNROLL
        for (int part = 0; part < 2; part++) {
            EK_UNROLL
            for (int h = 0; h < 2; h++)
                s[h].of[j] = vi_mlal8(s[h].of[j], of_x[h], (vi)pair.of[h], part);
        }
    }
}

EK_INLINE vi i4_sum(const i4_sums *s, const int j) {
    const vi_short *of = s->of + j * EK_VL;
    const vi sum =
        vi_sum4(vi_of_short(of[0]), vi_of_short(of[1]), vi_of_short(of[2]), vi_of_short(of[3]));
    const vi x = vi_of_short(s->x);
    return sum - vi_splat(I4_OFFSET * (x[0] + x[1] + x[2] + x[3]));
}
#else
#define I4_MOST 32 /* products of -127..127 and -8..7 whose sum fits 16 bits */
typedef struct {
    i8_two16 of[(NV + 1) / 2];
} i4_sums;

/* Keeps the compiler, which knows no latencies, from computing one value after the other. */
#define I4_TOGETHER(a, b, c, d) __asm__ volatile("" : "+vr"(a), "+vr"(b), "+vr"(c), "+vr"(d))

/* Two steps of two vectors each. */
EK_INLINE void i4_two_steps(i4_sums s[2], const i8_row *const x[2], long p, const uint8_t *w) {
    i4_bytes v[2][4];
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        memcpy(&v[0][i], w + i * I4_BYTES, sizeof v[0][i]);
    I4_TOGETHER(v[0][0], v[0][1], v[0][2], v[0][3]);
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        v[1][i] = v[0][i] >> 4, v[0][i] &= 15;
    I4_TOGETHER(v[0][0], v[0][1], v[0][2], v[0][3]);
    I4_TOGETHER(v[1][0], v[1][1], v[1][2], v[1][3]);
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        v[1][i] -= 8, v[0][i] -= 8;
    I4_TOGETHER(v[0][0], v[0][1], v[0][2], v[0][3]);
    I4_TOGETHER(v[1][0], v[1][1], v[1][2], v[1][3]);
    EK_UNROLL
    for (int i = 0; i < 4; i++) {
        EK_UNROLL
        for (int h = 0; h < 2; h++)
            s[h].of[i % 2] += vcast((i8_signed8)v[h][i], i8_two16) *
                              vcast(x[h][p + i / 2] - (i8_signed8){0}, i8_two16);
    }
}

EK_INLINE void i4_step(const int nv, i4_sums s[2], const i8_row *const x[2], long p,
                       const uint8_t *w) {
    EK_UNROLL
    for (int j = 0; j < (nv + 1) / 2; j++) {
        i4_bytes both = {0}; /* the last vector of an odd number is alone */
        memcpy(&both, w + j * I4_BYTES, 2 * j + 1 < nv ? I4_BYTES : I4_BYTES / 2);
        const i4_pair pair = i4_pair_of(both);
        EK_UNROLL
        for (int h = 0; h < 2; h++)
            s[h].of[j] += vcast((i8_signed8)pair.of[h], i8_two16) *
                          vcast(x[h][p] - (i8_signed8){0}, i8_two16);
    }
}

EK_INLINE vi i4_sum(const i4_sums *s, const int j) {
    const i8_two both = vcast(s->of[j / 2], i8_two);
    return j % 2 ? __builtin_shufflevector(both, both, 8, 9, 10, 11, 12, 13, 14, 15)
                 : __builtin_shufflevector(both, both, 0, 1, 2, 3, 4, 5, 6, 7);
}
#endif
#ifndef I4_MOST
#define I4_MOST GROUPS
#endif

EK_INLINE void i4_prefetch(const uint8_t *w, const int bytes) {
    EK_UNROLL
    for (int at = 0; I8_PREFETCH_DISTANCE && at < bytes; at += 64)
        __builtin_prefetch(w + I8_PREFETCH_DISTANCE + at);
}

/* total += the scaled sums of all groups, by units of `unit` values. */
EK_INLINE void add_units(const int nv, const long unit, const ek_i8_conv_args *a, const i8_row *row,
                         const uint8_t *w, const group_scale *scale, vf *total) {
    const int halves = unit < GROUPS;
    const long units = halves ? a->groups : a->groups / 2;
    const int bytes = nv * EK_VL * I8_STEP;
    for (long u = 0; u < units; u++) {
        const i8_row *x[2];
        const group_scale *by[2];
        EK_UNROLL
        for (int h = 0; h < 2; h++) {
            const long at = u + h * units, group = halves ? at / 2 : at;
            x[h] = row + group * a->group + (halves ? at % 2 * unit : 0);
            by[h] = scale + group * a->scale_pitch;
        }
        for (long from = 0; from < unit; from += I4_MOST) {
            i4_sums sums[2] = {0};
            const long until = ek_min(from + I4_MOST, unit);
            long p = from;
#if EK_I8 == EK_I8_WIDE16
            for (; nv == 4 && p + 4 <= until; p += 4, w += 4 * bytes) {
                i4_two_steps(sums, x, p, w);
                i4_two_steps(sums, x, p + 2, w + 2 * bytes);
            }
#endif
            for (; p < until; p += I8_STEP, w += bytes) {
                i4_prefetch(w, bytes);
                i4_step(nv, sums, x, p, w);
            }
            EK_UNROLL
            for (int j = 0; j < nv; j++) {
                EK_UNROLL
                for (int h = 0; h < 2; h++)
                    total[j] += vcast(i4_sum(&sums[h], j), vf) * scales_at(by[h] + j * EK_VL);
            }
        }
    }
}

EK_INLINE void add_groups_direct(const int nv, const ek_i8_conv_args *a, const i8_row *row,
                                 const void *w, const group_scale *scale, vf *total) {
    if (a->groups % 2)
        add_units(nv, GROUPS / 2, a, row, w, scale, total);
    else
        add_units(nv, GROUPS, a, row, w, scale, total);
}
#endif
