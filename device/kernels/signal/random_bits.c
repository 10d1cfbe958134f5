/* Philox-4x32 of 10 rounds: four words of random bits from a key and a counter of 128 bits.
 * Compile-time parameters: NAME, EK_SIMD. */
#include "../kernel.h"

typedef struct {
    long words;
    const void *state; /* uint64_t: the key, the lower and the upper half of the first counter */
    void *y;           /* uint32_t */
} ek_random_bits_args;

#define ROUNDS 10

static void draw(uint64_t key, uint64_t low, uint64_t high, uint32_t *y) {
    uint32_t a = (uint32_t)low, b = (uint32_t)(low >> 32);
    uint32_t c = (uint32_t)high, d = (uint32_t)(high >> 32);
    uint32_t k = (uint32_t)key, l = (uint32_t)(key >> 32);
    for (int i = 0; i < ROUNDS; i++, k += 0x9E3779B9, l += 0xBB67AE85) {
        const uint64_t first = (uint64_t)a * 0xD2511F53, second = (uint64_t)c * 0xCD9E8D57;
        a = (uint32_t)(second >> 32) ^ b ^ k, b = (uint32_t)second;
        c = (uint32_t)(first >> 32) ^ d ^ l, d = (uint32_t)first;
    }
    y[0] = a, y[1] = b, y[2] = c, y[3] = d;
}

/* Task: four words. */
void NAME(const void *args, long begin, long end) {
    const ek_random_bits_args *g = args;
    uint64_t state[3];
    memcpy(state, g->state, sizeof state);
    for (long t = begin; t < end; t++) {
        uint32_t four[4];
        draw(state[0], state[1] + (uint64_t)t, state[2], four);
        memcpy((uint32_t *)g->y + 4 * t, four, sizeof *four * (size_t)ek_min(4, g->words - 4 * t));
    }
}
