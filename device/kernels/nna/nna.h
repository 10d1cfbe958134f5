/* NNA emulator: matrix products and convolutions, bit-exact and cycle-exact to
 * device/runtime/arrays/nna_machine.py and device/runtime/arrays/nna_program.py, but faster. The
 * caller validates chips (device/runtime/arrays/nna_chip.py). */
#ifndef EK_NNA_H
#define EK_NNA_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Field names as in device/runtime/arrays/nna_chip.py. */
typedef struct {
    int32_t output_points, weight_sets, mac_cycles;
    int32_t load_latency, add_latency, write_latency, result_latency;
} ek_nna_chip;

/* In the order of OPERATIONS and CAUSES of device/runtime/arrays/nna_account.py. */
enum {
    EK_NNA_LA,
    EK_NNA_SA,
    EK_NNA_ADD,
    EK_NNA_CFG,
    EK_NNA_DWF,
    EK_NNA_DWW,
    EK_NNA_DOCB,
    EK_NNA_MACG,
    EK_NNA_OPERATIONS
};
enum {
    EK_NNA_OPERAND,
    EK_NNA_ARRAY,
    EK_NNA_SETTLE,
    EK_NNA_FRAM,
    EK_NNA_WEIGHTS,
    EK_NNA_RESULT,
    EK_NNA_CAUSES
};

typedef struct {
    int64_t overlapped, serial, load, fill, last_mac_end;
    int64_t instructions[EK_NNA_OPERATIONS], stalls[EK_NNA_CAUSES];
} ek_nna_counters;

/* An instruction, or if `stall` is set, the wait before one with cause `name`. */
typedef struct {
    int64_t start, end;
    int32_t name, stall;
} ek_nna_event;

/* Optional outputs besides the sums. */
typedef struct {
    ek_nna_counters *counters; /* NULL: no clocks, which is faster */
    ek_nna_event *events;      /* the first `capacity` events; needs counters */
    int64_t capacity, count;
} ek_nna_report;

typedef struct {
    int64_t m, k, n;
    const int8_t *a;    /* [m][k] */
    const int8_t *f;    /* [n / 32][k][32] */
    const int8_t *tail; /* [k][n % 32] */
    int32_t *sums;      /* [m][n] */
} ek_nna_matmul_args;

/* With `depthwise`, in_groups equals out_groups, and each output group reads only its own group of
 * x. */
typedef struct {
    int64_t in_groups, height, width; /* of x, including padding */
    int64_t out_groups, out_height, out_width;
    int64_t stride; /* 1 or 2 */
    int64_t depthwise;
    const int8_t *x; /* [in_groups][height][width][32] */
    const int8_t *w; /* [out_groups][in_groups][9][32 out][32 in]; depthwise: without in_groups */
    int32_t *sums;   /* [out_groups][out_height][out_width][32] */
} ek_nna_conv_args;

/* A 1x1 convolution or fully connected layer: nine groups of input channels are the taps. */
typedef struct {
    int64_t points, in_groups, out_groups;
    const int8_t *x; /* [in_groups][points][32] */
    const int8_t *w; /* [out_groups][in_groups][32 out][32 in] */
    int32_t *sums;   /* [out_groups][points][32] */
} ek_nna_pointwise_args;

void ek_nna_matmul(const ek_nna_chip *chip, const ek_nna_matmul_args *args, ek_nna_report *report);
void ek_nna_conv(const ek_nna_chip *chip, const ek_nna_conv_args *args, ek_nna_report *report);
void ek_nna_pointwise(const ek_nna_chip *chip, const ek_nna_pointwise_args *args,
                      ek_nna_report *report);

#ifdef __cplusplus
}
#endif

#endif
