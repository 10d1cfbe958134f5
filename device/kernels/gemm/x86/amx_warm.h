/* Keeps AMX powered up: its multiplier and its memory path power down within a microsecond without
 * use, about as long as packing a panel takes, and the next product would wait for them to power
 * up. Include after i8_types.h. */
#ifndef EK_GEMM_AMX_WARM_H
#define EK_GEMM_AMX_WARM_H
#ifdef AMX_LEAST

/* Configures the registers for tiles of `tile_rows` rows and steps of `groups` groups, unless they
 * already are. */
EK_INLINE void amx_set_up(long *registers, long tile_rows, long groups) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } how = {.palette = 1};
    const long rows = ek_min(tile_rows, AMX_ROWS), wanted = AMX_ROWS * groups + rows;
    if (*registers == wanted)
        return;
    for (int i = 0; i < 8; i++) {
        how.row_bytes[i] = i == 4 || i == 5 ? (uint16_t)(4 * groups) : 64;
        how.rows[i] = (uint8_t)(i < 6 ? rows : groups);
    }
    _tile_loadconfig(&how);
    *registers = wanted;
}

/* Intervals in slices (16 rows of four vectors). Stores are expensive if a strip is wide, and not
 * worthwhile if it is deep. */
enum { WARM_MULTIPLIER = 8, WARM_MEMORY = 32, WARM_SLICES = 96, WARM_VECTORS = 4 };

/* Called between the slices of a strip of `vectors` vectors. The register contents are irrelevant
 * because tiles start at zero. */
EK_INLINE void amx_keep_warm(long slice, long vectors) {
    if (slice % WARM_MULTIPLIER == 0)
        _tile_dpbssd(3, 4, 6);
    if (slice % WARM_MEMORY == 0 && vectors <= WARM_VECTORS && slice < WARM_SLICES) {
        uint8_t nowhere[AMX_ROWS * 64] __attribute__((aligned(64)));
        _tile_stored(3, nowhere, 64);
    }
}
#endif
#endif
