/* Micro-kernels of the GEMM framework: their interfaces and the tables that hold them. framework.c
 * is the loop nest that calls them; a family is the set of all micro-kernels for one pair of
 * operand types.
 *
 * Everything is counted in panels. Rows of C split into ceil(m / mr) panels whose widths differ by
 * at most one (17 rows by 8: 6 + 6 + 5). Columns split the same way into panels of full vectors, so
 * that no panel is narrow; k splits into equal blocks of at most kc. Hence there is a micro-kernel
 * for every width up to the tile. */
#ifndef EK_GEMM_MICROKERNELS_H
#define EK_GEMM_MICROKERNELS_H
#include <limits.h>
#include <math.h>
#include "../kernel.h"
#include "gemm.h"

/* A tile's arguments, constant within a block. All strides are in elements. */
typedef struct {
    long k;            /* depth of this block */
    long a_row, a_col; /* strides of A as this tile reads it; for a packed panel a_col is its row
                          count */
    long b_row;        /* row stride of B; nv * vl for a packed panel */
    long c_row, c_col; /* c_col is 1 for tiles; the dot kernel accepts any */
    long left;         /* columns in the last vector, 1 .. vl */
    int b_in_place;    /* b points into B, not to a panel */
    int load;          /* accumulate into C */
    int finish;        /* floats: sums are final; add the bias and clamp */
    const ek_gemm_epilogue *epilogue;
#ifdef EK_AMX
    long rows;            /* rows of the tile */
    long *registers;      /* AMX: the task's current tile configuration; 0: none yet */
    const char *prefetch; /* data to prefetch: one line per step of k, or NULL (x86/prefetch.h) */
    long prefetch_row;    /* stride between prefetched rows */
    int prefetch_all;     /* prefetch all lines of the panel's row */
#endif
} ek_gemm_job;

/* Whether final float sums need a bias or a clamp. */
static inline int ek_gemm_finishes(const ek_gemm_epilogue *e) {
    return e->bias || e->low_f32 != -INFINITY || e->high_f32 != INFINITY;
}

/* Brackets the tiles of a task: configuring tile registers is expensive, and they are released at
 * the end. A caller that has packed with them passes its configuration as `given`. */
#ifdef EK_AMX
#define EK_GEMM_BEGIN(job, given)                                                                  \
    long own_registers = 0;                                                                        \
    (job)->registers = (given) ? (given) : &own_registers
#define EK_GEMM_END() EK_GEMM_RELEASE(own_registers)
#define EK_GEMM_RELEASE(registers)                                                                 \
    if (registers)                                                                                 \
    _tile_release()
#define EK_GEMM_ROWS_OF_TILE(job, count) (job)->rows = (count)
#else
#define EK_GEMM_BEGIN(job, given)
#define EK_GEMM_END()
#define EK_GEMM_RELEASE(registers)
#define EK_GEMM_ROWS_OF_TILE(job, count)
#endif

/* Register tile: C[rows, vectors] (+)= A . B for the widths it was built for. row and column are
 * the position of c in C, used to index the epilogue's vectors. */
typedef void (*ek_gemm_tile)(const ek_gemm_job *job, const void *a, const void *b, void *c,
                             long row, long column);

/* How a tile reads its operands. NULL in the table: there is no such micro-kernel (too many rows
 * for the registers, for example), and the framework uses fewer rows. */
enum {
    EK_GEMM_PANEL = 0,  /* A: the rows of one k adjacent: packed, or a column-major A */
    EK_GEMM_ROWS = 1,   /* A in place, rows a_row apart */
    EK_GEMM_MASKED = 2, /* flag: B in place, and only `left` columns of its last vector */
    EK_GEMM_FORMS = 4,
    EK_GEMM_MAX_MR = 32,
    EK_GEMM_MAX_NV = 16,
    EK_GEMM_MAX_TILE = 1024, /* elements of C: mr * nv * vl */
};

/* Rows of C that a small-k kernel computes. */
typedef struct {
    long first, count;
} ek_gemm_rows;

/* Like a tile, but for any number of rows and one k. It uses the job's a_row and a_col as given and
 * never accumulates into C. */
typedef void (*ek_gemm_small_k)(const ek_gemm_job *job, const void *a, const void *b, void *c,
                                ek_gemm_rows rows, long column);
#define EK_GEMM_SMALL_K 4 /* largest k */

/* A row of tiles of plain sums: `rows` of A in a form times `count` full panels one vector wide,
 * `apart` bytes from one to the next, to adjacent columns of c. Returns how many of the panels,
 * from the first one on, it has multiplied. */
typedef long (*ek_gemm_some_panels)(const ek_gemm_job *job, int form, const void *a, long rows,
                                    const void *b, long apart, long count, void *c);
#if defined __aarch64__
#define EK_GEMM_AT_ONCE 1
#else
#define EK_GEMM_AT_ONCE 0
#endif

/* All micro-kernels nv vectors wide, by form and number of rows (1 to mr; index 0 is empty), and
 * small-k kernels by k; NULL: none. */
typedef struct {
    int mr, nv;
    ek_gemm_tile kernels[EK_GEMM_FORMS][EK_GEMM_MAX_MR + 1];
    ek_gemm_small_k small_k[EK_GEMM_SMALL_K + 1];
#if EK_GEMM_AT_ONCE
    ek_gemm_some_panels some_panels; /* NULL: none */
#endif
} ek_gemm_column;

/* Multiplies panels at once where a column can; returns how many. */
static inline __attribute__((always_inline)) long
ek_gemm_panels_at_once(const ek_gemm_column *column, const ek_gemm_job *job, int form,
                       const void *a, long rows, const void *b, long apart, long count, void *c) {
#if EK_GEMM_AT_ONCE
    const int plain = job->epilogue->output == EK_GEMM_PLAIN && !job->epilogue->bias && !job->load;
    if (column->some_panels && plain && job->c_col == 1 && !job->b_in_place)
        return column->some_panels(job, form, a, rows, b, apart, count, c);
#else
    (void)column, (void)job, (void)form, (void)a, (void)rows, (void)b, (void)apart, (void)count;
    (void)c;
#endif
    return 0;
}

/* Row stride of C, in elements, from which hardware prefetchers miss its lines and L1 does not hold
 * them: tiles prefetch them before multiplying. Measured on x86 only. */
#ifdef __x86_64__
#define EK_GEMM_FAR_ROWS 512
#else
#define EK_GEMM_FAR_ROWS LONG_MAX
#endif
#define EK_GEMM_PAGE 4096 /* bytes: rows a multiple of this apart share an L1 set */
#define EK_GEMM_LINE 16   /* 4-byte elements per cache line */

/* Prefetches `rows` rows of C, `columns` wide. */
static inline __attribute__((always_inline)) void
ek_gemm_prefetch_c(const int rows, const int columns, const void *c, long c_row) {
    const int32_t *at = c;
    _Pragma("clang loop unroll(full)") for (int i = 0; i < rows; i++, at += c_row) {
        _Pragma("clang loop unroll(full)") for (int j = 0; j < columns; j += EK_GEMM_LINE)
            __builtin_prefetch(at + j, 1);
    }
}

/* X(1) X(2) ... X(mr), for the micro-kernels of a column. */
#define EK_GEMM_UP_TO(mr, X) EK_GEMM_JOIN(EK_GEMM_TO_, mr)(X)
#define EK_GEMM_JOIN(a, b) EK_GEMM_JOIN_(a, b)
#define EK_GEMM_JOIN_(a, b) a##b
#define EK_GEMM_TO_1(X) X(1)
#define EK_GEMM_TO_2(X) EK_GEMM_TO_1(X) X(2)
#define EK_GEMM_TO_3(X) EK_GEMM_TO_2(X) X(3)
#define EK_GEMM_TO_4(X) EK_GEMM_TO_3(X) X(4)
#define EK_GEMM_TO_5(X) EK_GEMM_TO_4(X) X(5)
#define EK_GEMM_TO_6(X) EK_GEMM_TO_5(X) X(6)
#define EK_GEMM_TO_7(X) EK_GEMM_TO_6(X) X(7)
#define EK_GEMM_TO_8(X) EK_GEMM_TO_7(X) X(8)
#define EK_GEMM_TO_9(X) EK_GEMM_TO_8(X) X(9)
#define EK_GEMM_TO_10(X) EK_GEMM_TO_9(X) X(10)
#define EK_GEMM_TO_11(X) EK_GEMM_TO_10(X) X(11)
#define EK_GEMM_TO_12(X) EK_GEMM_TO_11(X) X(12)
#define EK_GEMM_TO_13(X) EK_GEMM_TO_12(X) X(13)
#define EK_GEMM_TO_14(X) EK_GEMM_TO_13(X) X(14)
#define EK_GEMM_TO_15(X) EK_GEMM_TO_14(X) X(15)
#define EK_GEMM_TO_16(X) EK_GEMM_TO_15(X) X(16)
#define EK_GEMM_TO_17(X) EK_GEMM_TO_16(X) X(17)
#define EK_GEMM_TO_18(X) EK_GEMM_TO_17(X) X(18)
#define EK_GEMM_TO_19(X) EK_GEMM_TO_18(X) X(19)
#define EK_GEMM_TO_20(X) EK_GEMM_TO_19(X) X(20)
#define EK_GEMM_TO_21(X) EK_GEMM_TO_20(X) X(21)
#define EK_GEMM_TO_22(X) EK_GEMM_TO_21(X) X(22)
#define EK_GEMM_TO_23(X) EK_GEMM_TO_22(X) X(23)
#define EK_GEMM_TO_24(X) EK_GEMM_TO_23(X) X(24)

/* Packs one panel: `width` rows of A or columns of B, `step` elements apart, `k` deep with stride
 * k_step. A panel of B has `vectors` full vectors; columns beyond width are zero. */
typedef void (*ek_gemm_packer)(const void *from, long step, long k_step, long width, long vectors,
                               long k, void *to);

/* Consecutive panels of B: `count` of them, the first `wider` with one vector more than `vectors`,
 * and their sizes in bytes, [1] for the wider ones. `values_only`: all tiles use tile registers and
 * need only a panel's values. `registers`: configured for the tiles that follow, of `rows` rows,
 * because AMX is kept warm (x86/amx_warm.h); NULL: it is not. */
typedef struct {
    long count, vectors, wider;
    size_t bytes[2];
    int values_only;
    long *registers, rows;
} ek_gemm_panels;

/* Packs all of these panels from `width` columns of a B with contiguous rows. */
typedef void (*ek_gemm_panels_packer)(const void *from, long k_step, long width,
                                      const ek_gemm_panels *panels, long k, void *to);

/* Packs `width` rows of a column-major A into `vectors` full vectors of a panel that covers an
 * entire block of `rows` rows. The framework packs EK_GEMM_ONE_PANEL_VECTORS vectors per call. */
typedef void (*ek_gemm_one_panel_packer)(const void *from, long k_step, long width, long vectors,
                                         long rows, long k, void *to);
enum { EK_GEMM_ONE_PANEL_VECTORS = 4 };

/* Packs an entire contiguous column-major A of `rows` rows into a panel of exactly that many rows;
 * returns 0 if it does not support that number. */
typedef int (*ek_gemm_narrow_packer)(const void *from, long rows, long k, void *to);

/* One row of A times `count` columns of B, b_col apart; k is contiguous in both. */
typedef void (*ek_gemm_dot)(const ek_gemm_job *job, const void *a, const void *b, long b_col,
                            void *c, long count, long column);

/* One row of A times `count` columns of a B that exceeds the cache; A, B and C have contiguous
 * rows. */
typedef void (*ek_gemm_row)(const ek_gemm_job *job, const void *a, const void *b, void *c,
                            long count, long column);

/* Packing and reading for a pair of operand types; one constant per pair, in f32_pack.c etc. */
typedef struct {
    int a_bytes, b_bytes; /* element sizes */
    int vl;               /* lanes per vector */
    int full_k;           /* k is never split: 8-bit sums are completed in one pass */
    int masked;           /* has EK_GEMM_MASKED micro-kernels */
    /* Bytes of one packed panel; the framework rounds them up to EK_GEMM_ALIGN. */
    size_t (*a_panel)(long rows, long k);
    size_t (*b_panel)(long vectors, long k);
    ek_gemm_packer pack_a, pack_b;
    ek_gemm_panels_packer pack_b_side_by_side; /* for b_col = 1; NULL: pack one panel after
                                                  another */
    ek_gemm_one_panel_packer pack_a_one_panel; /* for a_row = 1; NULL: one panel per tile */
    ek_gemm_narrow_packer pack_a_narrow;       /* NULL: none */
    int a_row_bytes;                           /* row stride of such a panel */
    /* Whether it can be read in place: EK_GEMM_PANEL or EK_GEMM_ROWS for A, 0 for B; -1: it must be
     * packed. */
    int (*a_form)(const ek_gemm_args *args);
    int (*b_form)(const ek_gemm_args *args);
    /* Tiles of so many rows in place, by two packed vectors, are faster than slightly lower ones:
     * rows are then not divided evenly; 0: none. */
    long whole_rows;
    /* Number of rows from which panels of A are laid out for AMX tile registers; 0: never. */
    long amx_rows;
    ek_gemm_dot dot; /* NULL: none; a single row then packs a B that is contiguous along k */
    ek_gemm_row row; /* NULL: none; tiles are used */
} ek_gemm_operands;

typedef struct {
    const ek_gemm_operands *operands;
    const char *tiles; /* the result of ek_gemm_tiles */
    int columns;       /* column[i] is i + 1 vectors wide; rows never increase with i */
    const ek_gemm_column *const *column;
} ek_gemm_family;

#define EK_GEMM_ALIGN 64

/* A library's families, by dtype; the last is u8 . s8 with swapped operands (s8 . u8), for
 * column-major C and products with one column. NULL: not built in. */
enum { EK_GEMM_S8U8 = 3, EK_GEMM_FAMILIES = 4 };
extern const ek_gemm_family *const ek_gemm_families[EK_GEMM_FAMILIES];

/* The generated table of a library, for vectors of 16 lanes:
 *
 *   extern const ek_gemm_column ek_gemm_f32_24x1, ek_gemm_f32_14x2;   objects of f32_tiles.c
 *   extern const ek_gemm_operands ek_gemm_f32;                        f32_pack.c
 *   static const ek_gemm_column *const f32[] = {&ek_gemm_f32_24x1, &ek_gemm_f32_14x2};
 *   static const ek_gemm_family f32_family = {&ek_gemm_f32, "24x16,14x32,1x32,32x1", 2, f32};
 *   const ek_gemm_family *const ek_gemm_families[EK_GEMM_FAMILIES] = {&f32_family};
 *
 * f32_tiles.c takes the macros NAME (ek_gemm_f32_24x1), MR, NV and EK_SIMD; the other f32 files
 * only EK_SIMD. i8_tiles.c, i8_pack.c and i8_dot.c also take TYPES: 1 s8 . s8, 2 u8 . s8, 3 s8 .
 * u8, for the names ek_gemm_s8*, ek_gemm_u8*, ek_gemm_s8u8*. */
#endif
