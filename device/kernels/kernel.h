/* Common header of all kernel files: the ISA's vectors and the task interface.
 *
 * A kernel is a function `void name(const void *args, long begin, long end)` over a range of
 * independent tasks; ek_parallel distributes the ranges. */
#ifndef EK_KERNEL_H
#define EK_KERNEL_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "ek.h"
#ifdef EK_SIMD
#include EK_SIMD
#endif

typedef void (*ek_task)(const void *args, long begin, long end);

/* Runs task over [0, tasks) on the pool, `grain` tasks at a time. */
void ek_parallel(ek_pool *pool, ek_task task, const void *args, long tasks, long grain);
/* Threads of a pool, including the caller; 1 if it is NULL. */
int ek_pool_threads(const ek_pool *pool);
/* Whether the pool was created for other cores than the one the caller is on. */
int ek_pool_is_elsewhere(const ek_pool *pool);

static inline long ek_min(long a, long b) {
    return a < b ? a : b;
}
static inline long ek_max(long a, long b) {
    return a > b ? a : b;
}

/* The larger and the smaller of two values, or x if it is NaN: fmax and fmin of ARM. */
#if defined __aarch64__
#define EK_AT_LEAST(x, low) __builtin_elementwise_maximum(x, low)
#define EK_AT_MOST(x, high) __builtin_elementwise_minimum(x, high)
#elif defined __riscv && !defined __riscv_vector
/* Without branches, which would keep compilers from interleaving elements. */
static inline __attribute__((always_inline, unused)) float ek_keep_nan(float y, float x) {
    uint32_t bits, nan = -(uint32_t)(x != x);
    __asm__("" : "+r"(nan)); /* else compilers make a branch of it */
    memcpy(&bits, &y, 4);
    bits |= nan;
    memcpy(&y, &bits, 4);
    return y;
}
#define EK_AT_LEAST(x, low) ek_keep_nan(__builtin_fmaxf(x, low), x)
#define EK_AT_MOST(x, high) ek_keep_nan(__builtin_fminf(x, high), x)
#else
#define EK_AT_LEAST(x, low) ((x) < (low) ? (low) : (x))
#define EK_AT_MOST(x, high) ((x) > (high) ? (high) : (x))
#endif

/* An NHWC image, the window that slides over it, and the output. */
typedef struct {
    int n, h, w, c; /* input */
    int oh, ow, oc; /* output */
    int kh, kw;     /* window */
    int sh, sw;     /* stride */
    int dh, dw;     /* dilation */
    int top, left;  /* padding before the image */
} ek_window;

/* Arguments of the function fused into a convolution: its parameters, and per-channel operands, if
 * any, padded to full vectors. */
typedef struct {
    float p, q;
    const void *operand;
} ek_epilogue;

#endif
