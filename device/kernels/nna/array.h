/* The multiply-add array and its RAMs, laid out for the products of gemm/i8_tile.h: features are
 * rows, weights are panels of BLOCK output channels. */
#ifndef EK_NNA_ARRAY_H
#define EK_NNA_ARRAY_H
#define MR 4 /* output points per product */
#ifndef NV
#define NV 2 /* vectors of output channels; MULL16 needs four registers per vector */
#endif
#include "../gemm/i8_tile.h"

#define CHANNELS EK_NNA_CHANNELS
#define TAPS EK_NNA_TAPS
#define POINTS 8   /* for the widest chip */
#define COLUMNS 18 /* columns of its FRAM rows */
#define FRAMS EK_NNA_FRAMS
#define SETS 2
#define BLOCK (NV * EK_VL)
#define BLOCKS (CHANNELS / BLOCK)

typedef struct {
    i8_row fram[FRAMS][EK_NNA_FRAM_ROWS][COLUMNS][CHANNELS] __attribute__((aligned(64)));
    i8_value wram[SETS][TAPS][BLOCKS][BLOCK * CHANNELS] __attribute__((aligned(64)));
    int32_t extra[SETS][TAPS][CHANNELS]; /* bias that flipping the features adds to each sum */
} ram_t;

EK_INLINE void write_pixel(i8_row *to, const int8_t *from) {
    for (int i = 0; i < CHANNELS; i++)
        to[i] = from[i];
}

/* Writes the weights of one tap and output channel, for all 32 input channels. */
EK_INLINE void write_weights(ram_t *ram, int set, int tap, int channel, const int8_t *from) {
    i8_value *panel = ram->wram[set][tap][channel / BLOCK] + channel % BLOCK * I8_GROUP;
    for (int g = 0; g < CHANNELS / I8_GROUP; g++)
        for (int i = 0; i < I8_GROUP; i++)
            panel[g * BLOCK * I8_GROUP + I8_PLACE(i)] = from[g * I8_GROUP + i];
    int32_t sum = 0;
    for (int i = 0; I8_FLIP(0) && i < CHANNELS; i++)
        sum += from[i];
    ram->extra[set][tap][channel] = 128 * sum;
}

/* One block of output channels for `mr` points; results are [point][channel]. */
EK_INLINE void mac_block(const int mr, const ram_t *ram, int set, int block, int taps,
                         const i8_row *const *window, int32_t *const *result) {
    i8_sums sums;
    vi extra[NV];
    for (int j = 0; j < NV; j++)
        extra[j] = (vi){0};
    i8_clear(&sums);
    for (int tap = 0; tap < TAPS; tap++) {
        if (!(taps >> tap & 1))
            continue;
        const i8_row *rows[MR];
        EK_UNROLL
        for (int i = 0; i < mr; i++)
            rows[i] = window[i] + (tap / 3 * COLUMNS + tap % 3) * CHANNELS;
        const i8_rows from = {rows, I8_STEP, I8_FLIP(0), 0, 0};
        i8_accumulate(mr, NV, &sums, from, CHANNELS, ram->wram[set][tap][block]);
        EK_UNROLL
        for (int j = 0; j < NV; j++)
            extra[j] += vi_load(ram->extra[set][tap] + block * BLOCK + j * EK_VL);
    }
    EK_UNROLL
    for (int i = 0; i < mr; i++) {
        EK_UNROLL
        for (int j = 0; j < NV; j++) {
            const vi sum = i8_sum(NV, &sums, i, j) - extra[j];
            memcpy(result[i] + block * BLOCK + j * EK_VL, &sum, sizeof sum);
        }
    }
}

/* All channels of `count` points, whose windows start at the given pixels. */
EK_INLINE void mac_points(const ram_t *ram, int set, int taps, int count,
                          const i8_row *const *window, int32_t *const *result) {
    for (int block = 0; block < BLOCKS; block++) {
        int i = 0;
        for (; i + MR <= count; i += MR)
            mac_block(MR, ram, set, block, taps, window + i, result + i);
        for (; i < count; i++)
            mac_block(1, ram, set, block, taps, window + i, result + i);
    }
}
#endif
