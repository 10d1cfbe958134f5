/* The shadow check: repeats an inference of a release with its float model. */
#ifndef EK_SHADOW_H
#define EK_SHADOW_H
#include "../ek.h"

enum { EK_SKETCH_BINS = 1024 }; /* sign, exponent and highest bit of the mantissa of an f32 */

typedef struct {
    const ek_model *model; /* the float model */
    const void *const *in;
    void *const *out;            /* its `outputs` first, then other tensors */
    const void *const *released; /* what the release computed, in the same order */
    const int64_t *elements;     /* of each output */
    const int64_t *raw;          /* of each output: 0 for f32, else its bytes */
    const float *const *seen;    /* `watched` inputs and outputs */
    const int64_t *counts;       /* of their elements */
    int outputs, watched;
    uint64_t *bins; /* [watched][EK_SKETCH_BINS], added to */
    float *ends;    /* [watched][2]: least and largest finite value so far */
    double noise;   /* result: RMS of the difference by that of the float output; the worst's */
    int same;       /* result: 1 if the largest value of output 0 is at the same place */
    int code;       /* result: of ek_run */
    uint64_t ns;    /* result: CPU time */
} ek_shadow_job;

/* Does the job in a thread of the idle class, so that it only takes time that nobody else wants,
 * and returns when it is done; 0 unless no thread could be started. */
int ek_shadow(ek_shadow_job *job);

#endif
