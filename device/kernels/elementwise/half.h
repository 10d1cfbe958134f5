/* Converts f16, stored as bits, to f32 and back, rounding half to even. Uses instructions of 64-bit
 * ARM, and of RISC-V's Zvfh if allowed; elsewhere integer arithmetic, which vectorizes on every
 * core. */
#ifndef EK_HALF_H
#define EK_HALF_H
#include <stdint.h>
#include <string.h>

static inline __attribute__((unused)) float ek_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline __attribute__((unused)) uint32_t ek_bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

#if defined __aarch64__ || defined __riscv_zvfh
static inline __attribute__((unused)) float ek_float_of_half(uint16_t half) {
    _Float16 value;
    memcpy(&value, &half, 2);
    return value;
}

static inline __attribute__((unused)) uint16_t ek_half_of_float(float value) {
    const _Float16 rounded = (_Float16)value;
    uint16_t half;
    memcpy(&half, &rounded, 2);
    return half;
}
#else
static inline __attribute__((unused)) float ek_float_of_half(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    /* Rebias the exponent by 112; all ones stay all ones. */
    const uint32_t moved = (rest << 13) + (rest >= 0x7c00 ? 224u << 23 : 112u << 23);
    /* Subnormal: rest / 2^24. */
    const uint32_t small = ek_bits_of_float((float)(int32_t)rest * 0x1p-24f);
    return ek_float_of_bits(sign | (rest < 0x400 ? small : moved));
}

static inline __attribute__((unused)) uint16_t ek_half_of_float(float value) {
    const uint32_t bits = ek_bits_of_float(value), rest = bits & 0x7fffffff;
    const uint32_t sign = bits >> 16 & 0x8000;
    /* Round half to even: add half a unit minus one, plus the lowest kept bit. */
    const uint32_t normal = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    /* After adding 0.5, the last bit of the sum is 2^-24, as in a subnormal. */
    const uint32_t small = ek_bits_of_float(ek_float_of_bits(rest) + 0.5f) - (126u << 23);
    uint32_t half = rest < 0x38800000 ? small : normal;
    half = rest >= 0x477ff000 ? 0x7c00 : half; /* rounds to infinity */
    half = rest > 0x7f800000 ? 0x7e00 : half;
    return (uint16_t)(sign | half);
}
#endif

/* Rounds to bfloat16, the upper half of the bits. NaN is kept because rounding could make it a
 * number. */
static inline __attribute__((unused)) float ek_rounded_to_bfloat16(float value) {
    const uint32_t bits = ek_bits_of_float(value);
    const uint32_t kept = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    return ek_float_of_bits((bits & 0x7fffffff) > 0x7f800000 ? bits : kept);
}
#endif
