/* A task as its two C files see it. */
#ifndef EK_TASK_PARTS_H
#define EK_TASK_PARTS_H
#include <stdint.h>

#include "../runtime/picture.h"
#include "task.h"

enum {
    COLORS = 3,
    MOST_OUTPUTS = 64,
    BYTES = 256,
    DIMS = 8,
    NAME = 16,
    FIELDS = 7,
    POINT_FIELDS = 3
};

typedef struct {
    int64_t shape[DIMS], elements;
    int rank, bits;
    char type; /* f, s, u or b */
    double scale;
    int64_t zero_point;
    int quantized;
} tensor;

struct ek_task {
    char kind[NAME], fit[NAME];
    double zoom;
    int reversed, fill, outputs, output, masks, labels; /* masks: of the objects; -1 for none */
    char **label;
    tensor in, out, mask;
    ek_picture picture; /* of the last frame */
    uint8_t elements[COLORS * BYTES];
    void *input, *results[MOST_OUTPUTS];
    int (*fit_picture)(const ek_picture *, void *);
};

#endif
