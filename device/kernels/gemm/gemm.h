/* C[m, n] = epilogue(A[m, k] . B[k, n]): what callers of the GEMM library see.
 *
 * A method says how (patent "improving GEMM performance": blocking, packing, register tile); it
 * comes from the knowledge base or from ek_gemm_default. Every method gives the right result for
 * every shape: blocks are cut to the product, tiles that this library does not hold are replaced
 * by the nearest one it has. Strides are in elements and may be any, zero and negative included
 * for A and B; the usual ones (either of the two is 1) are fast. */
#ifndef EK_GEMM_H
#define EK_GEMM_H
#include <stddef.h>
#include <stdint.h>
#include "../ek.h"

typedef enum {
    EK_GEMM_F32 = 0, /* f32 . f32 -> f32 */
    EK_GEMM_S8 = 1,  /* s8 . s8 -> s32, exact modulo 2^32 */
    EK_GEMM_U8 = 2,  /* u8 . s8 -> s32 */
} ek_gemm_dtype;

/* Or-ed to the dtype when a method is looked up: that operand was packed beforehand. */
enum { EK_GEMM_A_PACKED = 4, EK_GEMM_B_PACKED = 8 };

/* A tile is mr rows x nr columns of C. Its vectors go along n, as a rule, and nr is whole vectors;
 * if only mr is, they go along m: 128 x 1 for a matrix times a column vector, 48 x 7 for a C of few
 * columns (49). Packed operands are laid out for the one or the other. */
typedef struct {
    int32_t mc, kc, nc;     /* blocks of the loop nest, elements */
    int32_t mr, nr;         /* register tile */
    uint8_t pack_a, pack_b; /* copy blocks of the operand into panels first */
    uint8_t split;          /* threads share rows (0) or columns (1) of C */
} ek_gemm_method;

typedef enum {
    EK_GEMM_PLAIN = 0,    /* C in the type of the sums: f32, or s32 for bytes */
    EK_GEMM_FLOAT = 1,    /* bytes: C is f32 = sum * scale + bias */
    EK_GEMM_QUANTIZE = 2, /* bytes: C is s8 or u8, requantized as TFLite does, rounded twice */
    EK_GEMM_CALLBACK = 3, /* bytes: `take` stores C, of elements of 4 bytes; B must be packed,
                           and not for a transposed tile */
} ek_gemm_output;

/* The finished sums of a tile: [rows][width], the first `columns` of each; c is where the sum at
 * (row, column) belongs, the next row c_row elements further. */
typedef struct {
    const int32_t *sums;
    long row, rows, column, columns, width, c_row;
    void *c;
} ek_gemm_sums;

/* What happens to a finished sum before it is stored. Vectors go along n, or along m with
 * per_row; NULL: nothing to add. Requantization: see vi_factor in simd/vector.h. */
typedef struct {
    int32_t output; /* ek_gemm_output */
    int32_t per_row;
    const void *bias;   /* f32 for f32 and EK_GEMM_FLOAT, else s32 */
    const float *scale; /* EK_GEMM_FLOAT */
    const int32_t *multiplier, *left, *right;
    int32_t zero, low, high; /* EK_GEMM_QUANTIZE: zero point and clamp */
    float low_f32, high_f32; /* clamp of f32 outputs; -INFINITY, INFINITY: none */
    /* EK_GEMM_CALLBACK: called by any thread, once per tile. */
    void (*callback)(const void *callback_data, const ek_gemm_sums *sums);
    const void *callback_data;
} ek_gemm_epilogue;

typedef struct {
    int32_t dtype;              /* ek_gemm_dtype */
    int32_t a_packed, b_packed; /* a or b is what ek_gemm_pack made for the same method */
    int32_t accumulate; /* PLAIN: C += A . B, bias and clamp after; CALLBACK: `take` reads C */
    long m, n, k;       /* all >= 0; k = 0 leaves the epilogue of zero */
    const void *a, *b;
    void *c;
    long a_row, a_col, b_row, b_col, c_row, c_col;
    ek_gemm_epilogue epilogue;
} ek_gemm_args;

/* Bytes and making of a packed operand (weights, packed once): side 0 is A (extent m), 1 is B
 * (extent n). row and col are the strides of the operand as it stands in ek_gemm_args. */
size_t ek_gemm_packed_bytes(int dtype, int side, long extent, long k, const ek_gemm_method *how);
void ek_gemm_pack(int dtype, int side, long extent, long k, const ek_gemm_method *how,
                  const void *from, long row, long col, void *to);

/* Bytes of scratch (64-byte aligned) a product needs with a method on a pool of `threads`. */
size_t ek_gemm_scratch_bytes(const ek_gemm_args *args, const ek_gemm_method *how, int threads);
void ek_gemm_run(const ek_gemm_args *args, const ek_gemm_method *how, void *scratch, ek_pool *pool);

/* The analytic default for a shape: register tile by least waste, blocks from the cache sizes
 * that the library was built with. */
ek_gemm_method ek_gemm_default(int dtype, int threads, long m, long n, long k);

/* The register tiles of a dtype that this library holds: "8x48,12x32,...,1x0,0x1"; 1xN and Mx1
 * forms (GEMV) included. */
const char *ek_gemm_tiles(int dtype);
#endif
