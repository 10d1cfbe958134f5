/* Prefetches B for the register tiles of f32_tile.h, which includes this file. */
#ifndef EK_F32_PREFETCH_H
#define EK_F32_PREFETCH_H

/* Intel cores with AMX: their prefetchers follow fewer rows of B than k is deep. */
#ifdef __AMX_TILE__
#define F32_PREFETCHES 1
#else
#define F32_PREFETCHES 0
#endif

EK_INLINE void f32_prefetch(const int lines, f32_columns *b) {
    if (!lines)
        return;
    EK_UNROLL
    for (int j = 0; j < lines; j++)
        __builtin_prefetch(b->prefetch + j * EK_VL);
    b->prefetch += b->prefetch_row;
}

/* Rows of nv vectors of B to prefetch ahead; 0: none. In-order cores: DRAM latency, in steps of a
 * tile of 6 x 3 vectors. Out-of-order cores: F32_PREFETCH_BYTES, because their own prefetchers stop
 * at the end of each page. Those with dot products multiply about as fast as they read memory: the
 * last tile of a panel prefetches the start of the next one, so that threads do not all wait at
 * once, and then all multiply. For slower ones, only kernels that read each weight once or twice
 * define it. */
#if !defined F32_PREFETCH_BYTES && defined __ARM_FEATURE_DOTPROD
#define F32_PREFETCH_BYTES 8192
#endif
#if F32_LANES && EK_IN_ORDER
#define F32_ROWS_PREFETCHED(nv) 16
#elif F32_LANES && defined F32_PREFETCH_BYTES
#define F32_ROWS_PREFETCHED(nv) (F32_PREFETCH_BYTES / ((nv) * EK_VL * (int)sizeof(ek_real)))
#else
#define F32_ROWS_PREFETCHED(nv) 0
#endif

/* For single rows, which wait for B: whether what is prefetched now is in the next page.
 * Prefetchers of cores in order stop at the end of a page, and would miss each of the first lines
 * of the next one; elsewhere they have more lines on their way than prefetch instructions. */
EK_INLINE int f32_leaves_page(const int mr, const int nv, const f32_columns *b) {
    const uintptr_t page = 4096;
    if (!F32_LANES || !EK_IN_ORDER || mr > 1)
        return 0;
#ifdef NARROW
    if (b->source != F32_WIDE)
        return (uintptr_t)b->stored % page +
                   F32_ROWS_PREFETCHED(nv) * (unsigned long)b->row * sizeof *b->stored >=
               page;
#endif
    return (uintptr_t)b->at % page +
               F32_ROWS_PREFETCHED(nv) * (unsigned long)b->row * sizeof *b->at >=
           page;
}

#ifdef READ_AHEAD
/* Lines of a later call's weights that a full tile prefetches in EK_VL steps, so that a core out of
 * order asks for them no faster than memory delivers them. */
#define F32_LINES_AHEAD (MR * NV < 16 ? 1 : MR * NV < 24 ? 2 : 3)
#define F32_BYTES_AHEAD(k) ((k) / EK_VL * F32_LINES_AHEAD * 64)
#define F32_TOUCHED EK_READ_AHEAD_TOUCHED

/* The load, of a line that was prefetched before, shows the board simulator the address. */
EK_INLINE void f32_read_ahead(f32_columns *b) {
    const char *touched = b->ahead - F32_TOUCHED;
#define LINE_AHEAD(i) "prfm pldl1keep, [%0, #%1 + 64 * " #i "]\n"
    if (F32_LINES_AHEAD == 1)
        __asm__("ldr wzr, [%0]\n" LINE_AHEAD(0)::"r"(touched), "n"(F32_TOUCHED));
    else if (F32_LINES_AHEAD == 2)
        __asm__("ldr wzr, [%0]\n" LINE_AHEAD(0) LINE_AHEAD(1)::"r"(touched), "n"(F32_TOUCHED));
    else
        __asm__("ldr wzr, [%0]\n" LINE_AHEAD(0) LINE_AHEAD(1) LINE_AHEAD(2)::"r"(touched),
                "n"(F32_TOUCHED));
    b->ahead += F32_LINES_AHEAD * 64;
}
#endif

/* In step l, of rows that start at a line in step 0: where rows are adjacent, each line is
 * prefetched once. */
EK_INLINE void f32_prefetch_rows(const int nv, const int l, f32_columns *b) {
    const int bytes = nv * EK_VL * (int)sizeof(ek_real);
    const int adjacent = __builtin_constant_p(b->row) && b->row == nv * EK_VL;
    const long ahead = F32_ROWS_PREFETCHED(nv) * b->row;
    if (!F32_ROWS_PREFETCHED(nv))
        return;
#ifdef READ_AHEAD
    if (l == 0 && b->ahead)
        f32_read_ahead(b);
#endif
#ifdef NARROW
    if (b->source != F32_WIDE) {
        __builtin_prefetch(b->stored + ahead);
        return;
    }
#endif
    EK_UNROLL
    for (int at = adjacent ? -(l * bytes) & 63 : 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)(b->at + ahead) + at);
}

#endif
