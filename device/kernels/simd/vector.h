/* The vectors all kernels use: EK_VL lanes of 32 bits, through the compiler's vector extensions. An
 * ISA header sets EK_VL and the switches below, includes this file, and overrides operations that
 * its intrinsics implement better.
 *
 *   EK_VL         32-bit lanes per vector; 1 means plain scalars
 *   EK_HALF       floats (ek_real, vf) are f16: EK_VL counts these, and a vi takes two registers
 *   EK_FMA        the core has fused multiply-add
 *   EK_LANES      multiply by a lane of a vector that was loaded along k (ARM), instead of
 *                 broadcasting one element from memory (x86, RVV)
 *   EK_PAIRS      vi_pair16(acc, a, b): acc + the products of both 16-bit halves of each lane
 *   EK_QUANTIZED8 vi_multiply_low and _high, vi_quantized8: sums of eight 16-bit products (ARM)
 *   EK_I8         8-bit products: EK_I8_DOT4_US, EK_I8_DOT4_SS, EK_I8_MMLA, EK_I8_PAIR16,
 *                 EK_I8_FOUR16, EK_I8_WIDE16, EK_I8_MULL16 or EK_I8_MADOT (see gemm/i8_tile.h) */
#ifndef EK_SIMD_VECTOR_H
#define EK_SIMD_VECTOR_H
#include <stdint.h>
#include <string.h>

#define EK_I8_DOT4_US 1 /* u8 x s8 dot products of 4 (AVX-512 VNNI) */
#define EK_I8_DOT4_SS 2 /* s8 x s8 dot products of 4 (ARM SDOT) */
#define EK_I8_PAIR16 3  /* s16 x s16 dot products of 2 (pmaddwd) */
#define EK_I8_WIDE16 4  /* s16 x s16 -> s32 multiply-add */
#define EK_I8_MULL16 5  /* s8 x s8 -> s16 products, added in pairs to s32 (NEON) */
#define EK_I8_FOUR16 6  /* like PAIR16, but bytes are widened by shifts (no pmovsxbw) */
#define EK_I8_MMLA 7    /* s8 x s8: two rows of 8 by two columns of 8 (ARM SMMLA) */
#define EK_I8_MADOT 8   /* s8 x s8: four rows of 8 by four columns of 8 (SpacemiT vmadot) */
/* vi_dot4 takes signed bytes. */
#define EK_I8_SIGNED_DOTS (EK_I8 == EK_I8_DOT4_SS || EK_I8 == EK_I8_MMLA)

#define EK_INLINE static inline __attribute__((always_inline, unused))
/* Put before float loops that the compiler should vectorize, without reductions: some instruction
 * sets require opting in. */
#ifndef EK_VECTOR_LOOP
#define EK_VECTOR_LOOP
#endif
/* Put before every loop over an array that should be kept in registers. */
#define EK_UNROLL _Pragma("clang loop unroll(full)")

#ifdef EK_HALF
typedef _Float16 ek_real;
#else
typedef float ek_real;
#endif

#if EK_VL > 1
typedef ek_real vf __attribute__((vector_size(sizeof(ek_real) * EK_VL)));
typedef int32_t vi __attribute__((vector_size(4 * EK_VL)));
typedef uint32_t vu __attribute__((vector_size(4 * EK_VL)));
typedef int64_t vl __attribute__((vector_size(8 * EK_VL)));
typedef int16_t vs __attribute__((vector_size(2 * EK_VL)));
typedef int8_t vb __attribute__((vector_size(EK_VL)));
typedef uint8_t vub __attribute__((vector_size(EK_VL)));
#define vcast(v, T) __builtin_convertvector(v, T)
#define vlane(v, l) ((v)[l])
#define EK_MASK(condition) (condition) /* all bits set where true */
#else
typedef ek_real vf;
typedef int32_t vi;
typedef uint32_t vu;
typedef int64_t vl;
typedef int16_t vs;
typedef int8_t vb;
typedef uint8_t vub;
#define vcast(v, T) ((T)(v))
#define vlane(v, l) (v)
#define EK_MASK(condition) (-(condition))
#endif

#ifndef EK_OPAQUE
#define EK_OPAQUE(v) /* hides from the optimizer that all lanes of v are equal */
#endif

#ifndef EK_IN_ORDER_HERE
#define EK_IN_ORDER_HERE __asm__ volatile("" ::: "memory")
#endif
#ifndef EK_OPAQUE_ADDRESS
#define EK_OPAQUE_ADDRESS(p) /* computes an address once instead of in every load from it */
#endif
#ifndef EK_OPAQUE_INDEX
#define EK_OPAQUE_INDEX(i) /* keeps i in a register instead of recomputing it */
#endif

EK_INLINE vf vf_load(const ek_real *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
EK_INLINE void vf_store(ek_real *p, vf v) {
    memcpy(p, &v, sizeof v);
}
EK_INLINE vi vi_load(const int32_t *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}
EK_INLINE vf vf_splat(ek_real x) {
    return x - (vf){0};
}
EK_INLINE void vi_store(int32_t *p, vi v) {
    memcpy(p, &v, sizeof v);
}
EK_INLINE vi vi_splat(int32_t x) {
    return x - (vi){0};
}
#ifdef EK_HALF
typedef vs vm; /* result of comparing floats */
#else
typedef vi vm;
#endif
/* a where the mask has all bits set, b where it has none. */
EK_INLINE vf vf_where(vm mask, vf a, vf b) {
#if EK_VL > 1
    return (vf)(((vm)a & mask) | ((vm)b & ~mask));
#else
    return mask ? a : b;
#endif
}
/* a + b modulo 2^32. */
EK_INLINE vi vi_wrap_add(vi a, vi b) {
    return (vi)((vu)a + (vu)b);
}

#ifndef EK_OWN_PARTIAL
/* The first n lanes (0 < n < EK_VL); the rest are zero or not stored. */
static __attribute__((noinline, unused)) vf vf_load_n(const ek_real *p, long n) {
    ek_real t[EK_VL] = {0};
    for (long i = 0; i < n; i++)
        t[i] = p[i];
    return vf_load(t);
}
static __attribute__((noinline, unused)) void vf_store_n(ek_real *p, vf v, long n) {
    ek_real t[EK_VL];
    vf_store(t, v);
    for (long i = 0; i < n; i++)
        p[i] = t[i];
}
#endif

/* The sum of all lanes, in unspecified order. */
EK_INLINE ek_real vf_sum(vf v) {
#if EK_VL > 1
    _Pragma("clang fp reassociate(on)") ek_real sum = 0;
    EK_UNROLL
    for (int l = 0; l < EK_VL; l++)
        sum += v[l];
    return sum;
#else
    return v;
#endif
}

/* Copies n bytes without a call; 0 <= n < 64. */
EK_INLINE void ek_copy_short(void *to, const void *from, long n) {
    char *y = (char *)to;
    const char *x = (const char *)from;
    if (n & 32) {
        memcpy(y, x, 32);
        x += 32, y += 32;
    }
    if (n & 16) {
        memcpy(y, x, 16);
        x += 16, y += 16;
    }
    if (n & 8) {
        memcpy(y, x, 8);
        x += 8, y += 8;
    }
    if (n & 4) {
        memcpy(y, x, 4);
        x += 4, y += 4;
    }
    if (n & 2) {
        memcpy(y, x, 2);
        x += 2, y += 2;
    }
    if (n & 1)
        *y = *x;
}

#ifndef EK_OWN_PARTIAL
static __attribute__((noinline, unused)) vi vi_load_n(const int32_t *p, long n) {
    vi v = {0};
    ek_copy_short(&v, p, 4 * n);
    return v;
}
static __attribute__((noinline, unused)) void vi_store_n(int32_t *p, vi v, long n) {
    ek_copy_short(p, &v, 4 * n);
}
#endif

/* Converts 8-bit values to 32-bit lanes, and lanes that fit back to bytes. */
EK_INLINE vi vi_from_s8(const int8_t *p) {
    vb v;
    memcpy(&v, p, sizeof v);
    return vcast(vcast(v, vs), vi);
}
EK_INLINE vi vi_from_u8(const uint8_t *p) {
    vub v;
    memcpy(&v, p, sizeof v);
    return vcast(vcast(v, vs), vi);
}
EK_INLINE void vi_to_bytes(void *p, vi v) {
    vb b = vcast(v, vb); /* keeps the low byte, whatever its sign */
    memcpy(p, &b, sizeof b);
}
#ifndef EK_OWN_PARTIAL_BYTES
static __attribute__((noinline, unused)) vi vi_from_s8_n(const int8_t *p, long n) {
    int8_t t[EK_VL] = {0};
    ek_copy_short(t, p, n);
    return vi_from_s8(t);
}
static __attribute__((noinline, unused)) vi vi_from_u8_n(const uint8_t *p, long n) {
    uint8_t t[EK_VL] = {0};
    ek_copy_short(t, p, n);
    return vi_from_u8(t);
}
static __attribute__((noinline, unused)) void vi_to_bytes_n(void *p, vi v, long n) {
    vb b = vcast(v, vb);
    ek_copy_short(p, &b, n);
}
#endif

/* The same for 16-bit values. */
EK_INLINE vi vi_from_s16(const int16_t *p) {
    vs v;
    memcpy(&v, p, sizeof v);
    return vcast(v, vi);
}
#ifndef EK_HALF
/* Loads bfloat16, the upper halves of floats. */
EK_INLINE vf vf_from_bf16(const uint16_t *p) {
    vs upper;
    memcpy(&upper, p, sizeof upper);
    const vu wide = (vu)vcast(upper, vi) << 16;
    vf v;
    memcpy(&v, &wide, sizeof v);
    return v;
}
#endif
EK_INLINE void vi_to_s16(int16_t *p, vi v) {
    const vs narrow = vcast(v, vs);
    memcpy(p, &narrow, sizeof narrow);
}
#ifndef EK_OWN_PARTIAL_SHORTS
static __attribute__((noinline, unused)) vi vi_from_s16_n(const int16_t *p, long n) {
    int16_t t[EK_VL] = {0};
    ek_copy_short(t, p, 2 * n);
    return vi_from_s16(t);
}
static __attribute__((noinline, unused)) void vi_to_s16_n(int16_t *p, vi v, long n) {
    const vs narrow = vcast(v, vs);
    ek_copy_short(p, &narrow, 2 * n);
}
#endif

EK_INLINE vf vf_fma(vf a, vf b, vf c) {
#if EK_FMA
    return __builtin_elementwise_fma(a, b, c);
#else
    return a * b + c;
#endif
}

#ifdef EK_OWN_NEAREST
EK_INLINE vi vi_from_integral(vf x);
#elif !defined EK_HALF
/* Integers with magnitudes up to 4e6. */
EK_INLINE vi vi_from_integral(vf x) {
    return vcast(x, vi);
}
#ifndef EK_OWN_ROUNDING
/* The nearest integers, rounding half away from zero; magnitudes up to 4e6. */
EK_INLINE vi vi_nearest(vf x) {
    const vi integer = vcast(x, vi);
    const vf rest = x - vcast(integer, vf);
    return integer - EK_MASK(rest >= 0.5f) + EK_MASK(rest <= -0.5f);
}
#endif
#endif
#if !defined EK_HALF && !defined EK_OWN_ROUNDING
/* The nearest integers, rounding half to even: adding 1.5 * 2^23 leaves no bits for a fraction;
 * magnitudes up to 4e6. */
EK_INLINE vi vi_nearest_even(vf x) {
    const vf shift = vf_splat(12582912.0f);
    return vi_from_integral((x + shift) - shift);
}
#endif

#ifdef EK_OWN_MAX
EK_INLINE vf vf_max(vf a, vf b);
EK_INLINE vf vf_min(vf a, vf b);
#else
EK_INLINE vf vf_max(vf a, vf b) {
    return __builtin_elementwise_max(a, b);
}
EK_INLINE vf vf_min(vf a, vf b) {
    return __builtin_elementwise_min(a, b);
}
#endif
/* A bound of vf_clamp, in each lane. On RISC-V, an infinite one becomes NaN: fmax and fmin then
 * return the other operand, also if that is NaN. */
EK_INLINE vf vf_bound(float bound) {
#ifdef __riscv
    uint32_t bits; /* integers: a branch on each bound made a network 1.05 times as slow (U74) */
    memcpy(&bits, &bound, sizeof bits);
    bits |= (uint32_t)(bits << 1 == 0xff000000u) << 22;
    memcpy(&bound, &bits, sizeof bits);
#endif
    return vf_splat((ek_real)bound);
}
/* v within [low, high]. NaN stays NaN, except on RISC-V, where it becomes a bound, if there is one:
 * with comparisons, a float network took 1.06 (X60) or 1.4 (U74) times as long. */
EK_INLINE vf vf_clamp(vf v, vf low, vf high) {
#if defined __aarch64__
    return __builtin_elementwise_minimum(__builtin_elementwise_maximum(v, low), high);
#elif defined EK_OWN_MAX /* ARM's keep NaN, x86's their second operand then */
    return vf_min(high, vf_max(low, v));
#elif defined __riscv
    return vf_min(vf_max(v, low), high);
#else
    v = vf_where(EK_MASK(v < low), low, v);
    return vf_where(EK_MASK(v > high), high, v);
#endif
}
EK_INLINE vi vi_max(vi a, vi b) {
    return __builtin_elementwise_max(a, b);
}
EK_INLINE vi vi_min(vi a, vi b) {
    return __builtin_elementwise_min(a, b);
}

#ifndef EK_OWN_MULHI
/* round(a * b / 2^31): TFLite's saturating rounding doubling high multiply, without saturation:
 * that needs a = b = INT32_MIN, impossible with a positive multiplier. */
EK_INLINE vi vi_mulhi(vi a, vi b) {
    vl wide = vcast(a, vl) * vcast(b, vl) + ((vl){0} + (1LL << 30));
    return vcast(wide >> 31, vi);
}
#endif

#ifndef EK_OWN_ROUNDING_SHIFT
/* x * 2^-n, rounded half away from zero; 0 <= n < 31 per lane. */
EK_INLINE vi vi_rounding_shift(vi x, vi n) {
    vi mask = (vi_splat(1) << n) - 1;
    vi rest = x & mask;
    vi half = (mask >> 1) + ((x >> 31) & 1);
    return (x >> n) - EK_MASK(rest > half);
}
#endif

/* A real factor in TFLite's form: multiplier * 2^(left - right - 31). */
typedef struct {
    vi multiplier, left, right;
} vi_factor;

EK_INLINE vi_factor vi_factor_at(const int32_t *multiplier, const int32_t *left,
                                 const int32_t *right, long at) {
    return (vi_factor){vi_load(multiplier + at), vi_load(left + at), vi_load(right + at)};
}

/* TFLite's MultiplyByQuantizedMultiplier with double rounding. */
EK_INLINE vi vi_requantize(vi x, vi_factor f) {
    return vi_rounding_shift(vi_mulhi(x * (vi_splat(1) << f.left), f.multiplier), f.right);
}

#ifndef EK_OWN_SHIFT_RIGHT
/* vi_rounding_shift for 1 <= n and |x| + 2^(n - 1) < 2^31. */
EK_INLINE vi vi_shift_right(vi x, vi n) {
    return (x + (vi_splat(1) << (n - 1)) + (x >> 31)) >> n;
}
#endif

/* vi_requantize for left = 0, right >= 1 and |x| < 2^30. */
EK_INLINE vi vi_requantize_right(vi x, vi_factor f) {
    return vi_shift_right(vi_mulhi(x, f.multiplier), f.right);
}

#ifndef EK_OWN_REQUANTIZE_ONCE
/* The same factor with a single rounding, halves away from zero, as in LiteRT's fully connected
 * layers: x * m * 2^-n; m >= 0. */
EK_INLINE vi vi_requantize_once(vi x, vi m, vi n) {
    vl shift = vcast(n, vl), one = (vl){0} + 1;
    vl wide = vcast(x, vl) * vcast(m, vl);
    return vcast((wide + (one << (shift - 1)) + vcast(x >> 31, vl)) >> shift, vi);
}
#endif
#endif
