/* The code library of the GEMM framework: what a micro-kernel of each kind looks like, and the
 * tables that hold them. framework.c is the loop nest with these slots; a family is all
 * micro-kernels of one pair of operand types.
 *
 * Everything is counted in panels. Rows of C fall into ceil(m / mr) panels whose widths differ by
 * one at most (17 rows by 8: 6 + 6 + 5), columns into panels of whole vectors shared out in the
 * same way, so that no panel is narrow; k falls into equal blocks of at most kc. Every width up to
 * the tile therefore has its own code. */
#ifndef EK_GEMM_CODES_H
#define EK_GEMM_CODES_H
#include <limits.h>
#include <math.h>
#include "../kernel.h"
#include "gemm.h"

/* What a tile is told once per block. All strides are in elements. */
typedef struct {
    long k;            /* depth of this block */
    long a_row, a_col; /* of A as this tile reads it; a_col is the rows of a packed panel */
    long b_row;        /* of B; nv * vl for a packed panel */
    long c_row, c_col; /* c_col is 1 for tiles; the dot code takes any */
    long left;         /* columns in the last vector, 1 .. vl */
    int b_in_place;    /* b is B itself, not a panel */
    int load;          /* C holds earlier sums */
    int finish;        /* floats: sums are whole now, and get a bias or are clamped */
    const ek_gemm_epilogue *epilogue;
#ifdef EK_AMX
    long rows;       /* of the tile */
    long *registers; /* of AMX: what this task has set them up for; 0: nothing yet */
    const char
        *prefetch;     /* what is read soon: a line for each step of k, or NULL (x86/prefetch.h) */
    long prefetch_row; /* to the next */
    int prefetch_all;  /* all lines of the panel's row */
#endif
} ek_gemm_job;

/* Whether sums of floats that are whole become anything else. */
static inline int ek_gemm_finishes(const ek_gemm_epilogue *e) {
    return e->bias || e->low_f32 != -INFINITY || e->high_f32 != INFINITY;
}

/* Around the tiles of a task: their registers cost much to set up, and are left as they were. They
 * may be `given` to the task, by a caller who has packed with them. */
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

/* Register tile: C[rows, vectors] (+)= A . B for the widths it was made for. row and column say
 * where c stands in C, for the vectors of the epilogue. */
typedef void (*ek_gemm_tile)(const ek_gemm_job *job, const void *a, const void *b, void *c,
                             long row, long column);

/* How a tile reads its operands. NULL in the table: there is no such code (too many rows for the
 * registers, say), and the framework takes fewer rows. */
enum {
    EK_GEMM_PANEL = 0,  /* A: the rows of one k side by side: packed, or a column-major A */
    EK_GEMM_ROWS = 1,   /* A in place, rows a_row apart */
    EK_GEMM_MASKED = 2, /* or-ed in: B in place, and only `left` columns of its last vector */
    EK_GEMM_FORMS = 4,
    EK_GEMM_MAX_MR = 32,
    EK_GEMM_MAX_NV = 16,
    EK_GEMM_MAX_TILE = 1024, /* elements of C: mr * nv * vl */
};

/* Rows of C that a code for small k computes. */
typedef struct {
    long first, count;
} ek_gemm_rows;

/* As a tile, for any number of rows and one k; the job's a_row and a_col are what they are, and
 * nothing is loaded from C. */
typedef void (*ek_gemm_small_k)(const ek_gemm_job *job, const void *a, const void *b, void *c,
                                ek_gemm_rows rows, long column);
#define EK_GEMM_SMALL_K 4 /* k */

/* All codes that are nv vectors wide, by form and rows: up to mr, and none for 0; those for small k
 * by k, NULL: there is none. */
typedef struct {
    int mr, nv;
    ek_gemm_tile codes[EK_GEMM_FORMS][EK_GEMM_MAX_MR + 1];
    ek_gemm_small_k small_k[EK_GEMM_SMALL_K + 1];
} ek_gemm_column;

/* Rows of C so many elements apart are lines that the core does not fetch by itself, and that are
 * not in its first cache: a tile prefetches them before its products. Measured on x86 alone. */
#ifdef __x86_64__
#define EK_GEMM_FAR_ROWS 512
#else
#define EK_GEMM_FAR_ROWS LONG_MAX
#endif
#define EK_GEMM_PAGE 4096 /* bytes: rows whole pages apart share a set of the first cache */
#define EK_GEMM_LINE 16   /* elements of 4 bytes in a cache line */

/* `rows` of them, `columns` wide. */
static inline __attribute__((always_inline)) void
ek_gemm_prefetch_c(const int rows, const int columns, const void *c, long c_row) {
    const int32_t *at = c;
    _Pragma("clang loop unroll(full)") for (int i = 0; i < rows; i++, at += c_row) {
        _Pragma("clang loop unroll(full)") for (int j = 0; j < columns; j += EK_GEMM_LINE)
            __builtin_prefetch(at + j, 1);
    }
}

/* X(1) X(2) ... X(mr), for the codes of a column. */
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

/* Packs one panel: `width` rows of A or columns of B that are `step` elements apart, `k` deep with
 * k_step between. The panel of B has `vectors` whole vectors; what lies beyond width is zero. */
typedef void (*ek_gemm_packer)(const void *from, long step, long k_step, long width, long vectors,
                               long k, void *to);

/* Panels of B that follow one another: `count` of them, the first `wider` with a vector more than
 * `vectors`, and their bytes: [1] of the wider ones. `values_only`: all tiles use tile registers,
 * and need nothing of a panel but its values. `registers`: set up for the tiles that follow, of
 * `rows`, since AMX is kept warm (x86/amx_warm.h); NULL: it is not. */
typedef struct {
    long count, vectors, wider;
    size_t bytes[2];
    int values_only;
    long *registers, rows;
} ek_gemm_panels;

/* Packs all of them from `width` columns of a B whose rows are contiguous. */
typedef void (*ek_gemm_panels_packer)(const void *from, long k_step, long width,
                                      const ek_gemm_panels *panels, long k, void *to);

/* Packs `width` rows of an A whose columns are contiguous as `vectors` vectors of the one panel of
 * a whole block, of `rows` rows: whole vectors, those of EK_GEMM_WHOLE_VECTORS at a time. */
typedef void (*ek_gemm_whole_packer)(const void *from, long k_step, long width, long vectors,
                                     long rows, long k, void *to);
enum { EK_GEMM_WHOLE_VECTORS = 4 };

/* Packs all of a column-major A of `rows` rows without a gap as such a panel of just so many rows,
 * or returns 0: not of so many. */
typedef int (*ek_gemm_narrow_packer)(const void *from, long rows, long k, void *to);

/* One row of A times `count` columns of B that are b_col apart, k contiguous in both. */
typedef void (*ek_gemm_dot)(const ek_gemm_job *job, const void *a, const void *b, long b_col,
                            void *c, long count, long column);

/* One row of A times `count` columns of a B too large for the cache, whose rows are contiguous, as
 * those of A and C are. */
typedef void (*ek_gemm_row)(const ek_gemm_job *job, const void *a, const void *b, void *c,
                            long count, long column);

/* How a pair of operand types is packed and read; one constant per pair, in f32_pack.c etc. */
typedef struct {
    int a_bytes, b_bytes; /* of an element */
    int vl;               /* lanes of a vector */
    int whole_k;          /* k is never cut in blocks: 8-bit sums are finished in one go */
    int masked;           /* has EK_GEMM_MASKED codes */
    /* Bytes of one packed panel; the framework rounds them up to EK_GEMM_ALIGN. */
    size_t (*a_panel)(long rows, long k);
    size_t (*b_panel)(long vectors, long k);
    ek_gemm_packer pack_a, pack_b;
    ek_gemm_panels_packer pack_b_side_by_side; /* for b_col = 1; NULL: one panel after the other */
    ek_gemm_whole_packer pack_a_whole;         /* for a_row = 1; NULL: a panel for each tile */
    ek_gemm_narrow_packer pack_a_narrow;       /* NULL: none */
    int a_row_bytes;                           /* from row to row of such a panel */
    /* Can it be read in place: EK_GEMM_PANEL or EK_GEMM_ROWS for A, 0 for B; -1: must be packed. */
    int (*a_form)(const ek_gemm_args *args);
    int (*b_form)(const ek_gemm_args *args);
    /* From so many rows on, panels of A are laid out for the tile registers of AMX; 0: none are. */
    long amx_rows;
    ek_gemm_dot dot; /* NULL: none; a single row then packs a B that is contiguous along k */
    ek_gemm_row row; /* NULL: none; tiles do it */
} ek_gemm_operands;

typedef struct {
    const ek_gemm_operands *operands;
    const char *tiles; /* what ek_gemm_tiles returns */
    int columns;       /* column[i] is i + 1 vectors wide, and has no more rows than those before */
    const ek_gemm_column *const *column;
} ek_gemm_family;

#define EK_GEMM_ALIGN 64

/* The families of a library, by dtype; the last is u8 . s8 with its operands swapped (s8 . u8),
 * which column-major C and products with one column need. NULL: not built in. */
enum { EK_GEMM_S8U8 = 3, EK_GEMM_FAMILIES = 4 };
extern const ek_gemm_family *const ek_gemm_families[EK_GEMM_FAMILIES];

/* The generated table of a library, for vectors of 16:
 *
 *   extern const ek_gemm_column ek_gemm_f32_24x1, ek_gemm_f32_14x2;   one object of f32_tiles.c
 * each extern const ek_gemm_operands ek_gemm_f32;                        f32_pack.c static const
 * ek_gemm_column *const f32[] = {&ek_gemm_f32_24x1, &ek_gemm_f32_14x2}; static const ek_gemm_family
 * f32_family = {&ek_gemm_f32, "24x16,14x32,1x32,32x1", 2, f32}; const ek_gemm_family *const
 * ek_gemm_families[EK_GEMM_FAMILIES] = {&f32_family};
 *
 * f32_tiles.c takes the macros NAME (ek_gemm_f32_24x1), MR, NV and EK_SIMD; the other f32 files
 * EK_SIMD alone. i8_tiles.c, i8_pack.c and i8_dot.c take besides TYPES: 1 s8 . s8, 2 u8 . s8,
 * 3 s8 . u8, for the names ek_gemm_s8*, ek_gemm_u8*, ek_gemm_s8u8*. */
#endif
