/* C[m, n] = epilogue(A[m, k] . B[k, n]): public interface of the GEMM library.
 *
 * A method (patent "improving GEMM performance") selects blocking, packing and register tile; it
 * comes from the knowledge base or from ek_gemm_default. Every method is correct for every shape:
 * blocks are cut to the product, and tiles that this library lacks are replaced by the nearest
 * available one. Strides are in elements and arbitrary, including zero and negative for A and B;
 * the common ones (row or column stride of 1) are fast. */
#ifndef EK_GEMM_H
#define EK_GEMM_H
#include <stddef.h>
#include <stdint.h>
#include "../ek.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    EK_GEMM_F32 = 0, /* f32 . f32 -> f32 */
    EK_GEMM_S8 = 1,  /* s8 . s8 -> s32, exact modulo 2^32 */
    EK_GEMM_U8 = 2,  /* u8 . s8 -> s32 */
    EK_GEMM_F16 = 3, /* f16 . f16 -> f16: only methods; product/half.h computes it */
} ek_gemm_dtype;

/* Or-ed with the dtype in method look-ups: that operand is already packed. */
enum { EK_GEMM_A_PACKED = 4, EK_GEMM_B_PACKED = 8 };

/* A tile is mr rows x nr columns of C. Its vectors normally run along n, and nr is a multiple of
 * the vector length; if only mr is, they run along m: 128 x 1 for a matrix times a column vector,
 * 48 x 7 for a C of few columns (49). Packed operands are laid out for one or the other. */
typedef struct {
    int32_t mc, kc, nc;     /* blocks of the loop nest, in elements */
    int32_t mr, nr;         /* register tile */
    uint8_t pack_a, pack_b; /* copy blocks of the operand into panels first */
    uint8_t split;          /* threads split rows (0) or columns (1) of C */
} ek_gemm_method;

typedef enum {
    EK_GEMM_PLAIN = 0,    /* C in the accumulator type: f32, or s32 for bytes */
    EK_GEMM_FLOAT = 1,    /* bytes: C is f32 = sum * scale + bias */
    EK_GEMM_QUANTIZE = 2, /* bytes: C is s8 or u8, requantized like TFLite, with double rounding */
    EK_GEMM_CALLBACK = 3, /* bytes: the callback stores C, of 4-byte elements; B must be packed and
                             the tile not transposed */
} ek_gemm_output;

/* Finished sums of a tile: [rows][width], of which the first `columns` are valid; c is the address
 * for the sum at (row, column), with row stride c_row in elements. */
typedef struct {
    const int32_t *sums;
    long row, rows, column, columns, width, c_row;
    void *c;
} ek_gemm_sums;

/* Applied to finished sums before they are stored. Vectors run along n, or along m with per_row;
 * NULL: nothing to add. For requantization see vi_factor in simd/vector.h. */
typedef struct {
    int32_t output; /* ek_gemm_output */
    int32_t per_row;
    const void *bias;   /* f32 for f32 and EK_GEMM_FLOAT, else s32 */
    const float *scale; /* EK_GEMM_FLOAT */
    const int32_t *multiplier, *left, *right;
    int32_t zero, low, high; /* EK_GEMM_QUANTIZE: zero point and clamp */
    float low_f32, high_f32; /* clamp of f32 outputs; -INFINITY, INFINITY: no clamp */
    /* EK_GEMM_CALLBACK: called on any thread, once per tile. */
    void (*callback)(const void *callback_data, const ek_gemm_sums *sums);
    const void *callback_data;
} ek_gemm_epilogue;

typedef struct {
    int32_t dtype;              /* ek_gemm_dtype */
    int32_t a_packed, b_packed; /* a or b was packed by ek_gemm_pack for the same method */
    int32_t accumulate; /* PLAIN: C += A . B, then bias and clamp; CALLBACK: the callback reads C */
    long m, n, k;       /* all >= 0; k = 0 applies the epilogue to zero */
    const void *a, *b;
    void *c;
    long a_row, a_col, b_row, b_col, c_row, c_col;
    ek_gemm_epilogue epilogue;
} ek_gemm_args;

/* Size in bytes, and packing, of a packed operand (weights, packed once): side 0 is A (extent m), 1
 * is B (extent n). row and col are the operand's strides as in ek_gemm_args. */
size_t ek_gemm_packed_bytes(int dtype, int side, long extent, long k, const ek_gemm_method *how);
void ek_gemm_pack(int dtype, int side, long extent, long k, const ek_gemm_method *how,
                  const void *from, long row, long col, void *to);

/* Bytes of scratch (64-byte aligned) that a product needs with a method on a pool of `threads`. */
size_t ek_gemm_scratch_bytes(const ek_gemm_args *args, const ek_gemm_method *how, int threads);
void ek_gemm_run(const ek_gemm_args *args, const ek_gemm_method *how, void *scratch, ek_pool *pool);

#define EK_GEMM_SHARED 131072 /* multiply-adds from which threads share a product */

/* The analytic default for a shape: the register tile with the lowest estimated cost, blocks from
 * the cache sizes that the library was built for. */
ek_gemm_method ek_gemm_default(int dtype, int threads, long m, long n, long k);

/* The register tiles available for a dtype: "8x48,12x32,...,1x0,0x1", including GEMV tiles (1xN,
 * Mx1). */
const char *ek_gemm_tiles(int dtype);

#ifdef __cplusplus
}
#endif

#endif
