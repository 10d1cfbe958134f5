/* HEIGHT elements of x at indices of 1, 2 or 4 bytes, from where the strip's columns begin. */
#ifndef EK_SPARSE_GATHER_H
#define EK_SPARSE_GATHER_H
#include "types.h"

#if defined __riscv_v && __has_builtin(__builtin_masked_gather) && EK_STORED != 3
/* The core has indexed loads. */
#define GATHER(BYTES, INDEX)                                                                       \
    EK_INLINE vsum gather_##BYTES(const operand *x, const uint8_t *ix) {                           \
        typedef INDEX narrow __attribute__((ext_vector_type(HEIGHT)));                             \
        typedef int64_t wide __attribute__((ext_vector_type(HEIGHT)));                             \
        typedef _Bool mask __attribute__((ext_vector_type(HEIGHT)));                               \
        narrow n;                                                                                  \
        memcpy(&n, ix, sizeof n);                                                                  \
        return (vsum)__builtin_masked_gather((mask)1, __builtin_convertvector(n, wide), x);        \
    }
#else
/* Indices come in words, so that the load units are free for x: on x86 this is ahead of the
 * gather instructions. */
#define GATHER(BYTES, INDEX)                                                                       \
    EK_INLINE vsum gather_##BYTES(const operand *x, const uint8_t *ix) {                           \
        vsum v;                                                                                    \
        EK_UNROLL for (int l = 0; l < HEIGHT; l++) {                                               \
            size_t word;                                                                           \
            const int per = (int)sizeof word / BYTES;                                              \
            const int left = HEIGHT * BYTES - l / per * (int)sizeof word;                          \
            if (left >= (int)sizeof word) {                                                        \
                memcpy(&word, ix + l / per * sizeof word, sizeof word);                            \
                v[l] = x[(INDEX)(word >> (l % per * 8 * BYTES))];                                  \
            } else {                                                                               \
                INDEX one;                                                                         \
                memcpy(&one, ix + l * BYTES, BYTES);                                               \
                v[l] = x[one];                                                                     \
            }                                                                                      \
        }                                                                                          \
        return v;                                                                                  \
    }
#endif
GATHER(1, uint8_t)
GATHER(2, uint16_t)
GATHER(4, uint32_t)
#endif
