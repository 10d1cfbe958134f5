/* The registers of AMX, and its multiplier and way to memory, which sleep when they are not used:
 * on an Intel with AMX after 0.3 and 0.6 us, and each then takes 0.3 us to wake. To pack a panel
 * takes as long as that, and the product behind it would wait. After i8_types.h. */
#ifndef EK_GEMM_I8_AWAKE_H
#define EK_GEMM_I8_AWAKE_H
#ifdef AMX_LEAST

/* Sets registers up for tiles of so many rows and steps of so many groups, unless they are. */
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

/* Slices (16 rows of four vectors) between. Stores are dear where a strip is wide, and not worth
 * their time where it is deep. */
enum { AWAKE_MULTIPLIER = 8, AWAKE_MEMORY = 32, AWAKE_SLICES = 96, AWAKE_VECTORS = 4 };

/* Between the slices of a strip of so many vectors: what is in the registers does not matter, tiles
 * begin with zero. */
EK_INLINE void amx_stay_awake(long slice, long vectors) {
    if (slice % AWAKE_MULTIPLIER == 0)
        _tile_dpbssd(3, 4, 6);
    if (slice % AWAKE_MEMORY == 0 && vectors <= AWAKE_VECTORS && slice < AWAKE_SLICES) {
        uint8_t nowhere[AMX_ROWS * 64] __attribute__((aligned(64)));
        _tile_stored(3, nowhere, 64);
    }
}
#endif
#endif
