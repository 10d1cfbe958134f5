/* A task as the C files of its kinds see it. */
#ifndef EK_TASK_PARTS_H
#define EK_TASK_PARTS_H
#include <stdint.h>

#include "../runtime/picture.h"
#include "task.h"

enum {
    COLORS = 3,
    MOST_OUTPUTS = 64,
    MOST_INPUTS = 16,
    BYTES = 256,
    DIMS = 8,
    NAME = 16,
    TENSOR_NAME = 128,
    FIELDS = 7,
    POINT_FIELDS = 3,
    CHARACTER_FIELDS = 2
};

typedef struct {
    int64_t shape[DIMS], elements;
    int rank, bits;
    char type; /* f, s, u or b */
    double scale;
    int64_t zero_point;
    int quantized;
    char name[TENSOR_NAME];
} tensor;

struct ek_task {
    char kind[NAME], fit[NAME];
    double zoom;
    int reversed, fill, output, masks; /* masks: of the objects; -1 for none */
    int inputs, outputs, labels, characters;
    int input, rate, stateful;
    char **label, **character; /* characters of lines, from number 1 */
    tensor in, out, mask, ins[MOST_INPUTS], outs[MOST_OUTPUTS];
    ek_picture picture; /* of the last frame */
    uint8_t elements[COLORS * BYTES];
    void *blocks[MOST_INPUTS], *results[MOST_OUTPUTS];
    const void *given[MOST_INPUTS]; /* the inputs of the next run: blocks, or others */
    ek_filter filter;               /* 0 for none */
    int (*fit_picture)(const ek_picture *, void *);
    int (*filter_picture)(const ek_picture *, ek_filter, void *);
};

int64_t ek_nearest(double value); /* halves to even */
/* The cell of a map below the center of a pixel. The picture's `pixels` along an edge are `fitted`
 * of the input's `side`, from `start`. */
int64_t ek_cell(int64_t pixel, int64_t pixels, int64_t fitted, int64_t start, int64_t side,
                int64_t cells);
void ek_put_label(const ek_task *task, int number, char label[EK_APP_LABEL_BYTES]);

#endif
