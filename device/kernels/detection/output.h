/* Detections of an image: the best boxes of each class that do not overlap a better one. */
#ifndef EK_DETECTION_OUTPUT_H
#define EK_DETECTION_OUTPUT_H
#include "../kernel.h"

/* A box of `box` with the score of a class. */
typedef struct {
    float score;
    int32_t label, box;
} ek_candidate;
_Static_assert(sizeof(ek_candidate) == EK_CANDIDATE_BYTES, "the host makes room for them");

typedef struct {
    long n, classes;    /* boxes of an image and scores of each */
    long locations;     /* boxes per place: 1, or one for each class */
    long background;    /* a class that is none, or -1 */
    long top_k;         /* candidates of a class */
    long keep;          /* rows of an image */
    long entries;       /* candidates that an image has room for */
    float threshold;    /* a score must be above */
    float overlap;      /* two boxes may share */
    const void *boxes;  /* [images, n, locations, 4] */
    const void *scores; /* [images, classes, n] */
    void *y;            /* [images, keep, 7] */
    void *candidates;   /* [images, entries] */
} ek_detection_args;
#endif
