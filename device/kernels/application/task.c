#include "task.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/picture.h"
#include "integrity.h"
#include "json.h"

enum {
    MOST_CLASSES = 1 << 24, /* f32 counts no further */
    COLORS = 3,
    FIELDS = 7,
    POINT_FIELDS = 3,
    MOST_OUTPUTS = 64,
    BYTES = 256,
    DIMS = 8,
    NAME = 16,
    ALIGNMENT = 64
};
static const double LEAST = 0.25; /* score of a box */

typedef struct {
    int64_t shape[DIMS], elements;
    int rank, bits;
    char type; /* f, s, u or b */
    double scale;
    int64_t zero_point;
    int quantized;
} tensor;

typedef struct {
    double mean[COLORS], scale[COLORS];
    int stated;
} range;

struct ek_task {
    char kind[NAME], fit[NAME];
    int reversed, fill, outputs, output, labels;
    char **label;
    tensor in, out;
    ek_picture picture; /* of the last frame */
    uint8_t elements[COLORS * BYTES];
    void *input, *results[MOST_OUTPUTS];
    int (*fit_picture)(const ek_picture *, void *);
};

static int64_t nearest(double value) { /* halves to even, without libm */
    int64_t low = (int64_t)value - (value < (double)(int64_t)value);
    double rest = value - (double)low;
    return low + (rest > 0.5 || (rest == 0.5 && low % 2));
}

static int64_t floor_half(int64_t value) {
    return value >= 0 ? value / 2 : -((1 - value) / 2);
}

static void copy_text(const char *object, const char *key, char *to, size_t bytes) {
    const char *at = ek_json_value(object, key);
    char *text = at ? ek_json_text(at) : NULL;
    *to = 0;
    if (text)
        strncat(to, text, bytes - 1);
    free(text);
}

static tensor tensor_of(const char *object) {
    tensor t = {.elements = 1, .scale = 1};
    char type[NAME];
    copy_text(object, "dtype", type, sizeof type);
    t.type = *type;
    t.bits = type[0] == 'b' ? 8 : atoi(type + 1);
    for (const char *at = ek_json_first(ek_json_value(object, "shape")); at; at = ek_json_next(at))
        if (t.rank < DIMS) {
            t.shape[t.rank] = strtoll(at, NULL, 10);
            t.elements *= t.shape[t.rank++];
        }
    const char *scale = ek_json_value(object, "scale"), *zero = ek_json_value(object, "zero_point");
    t.quantized = scale && *scale != 'n';
    if (t.quantized) {
        t.scale = strtod(scale, NULL);
        t.zero_point = zero ? strtoll(zero, NULL, 10) : 0;
    }
    return t;
}

static int is_named(const char *object, const char *name) {
    const char *at = ek_json_value(object, "name");
    char *own = at ? ek_json_text(at) : NULL;
    int same = own && !strcmp(own, name);
    free(own);
    return same;
}

static void *block(const tensor *t) {
    void *made = NULL;
    size_t size = (size_t)(t->elements * t->bits / 8);
    return posix_memalign(&made, ALIGNMENT, size ? size : 1) ? NULL : memset(made, 0, size);
}

/* Finds input and output of these names, and memory for all tensors. */
static int find_tensors(ek_task *task, const char *description, const char *in, const char *out) {
    const char *at = ek_json_first(ek_json_value(description, "inputs"));
    if (!at || !is_named(at, in) || ek_json_next(at))
        return 0;
    task->in = tensor_of(at);
    task->input = block(&task->in);
    task->output = -1;
    for (at = ek_json_first(ek_json_value(description, "outputs")); at; at = ek_json_next(at)) {
        tensor t = tensor_of(at);
        if (task->outputs == MOST_OUTPUTS || !(task->results[task->outputs] = block(&t)))
            return 0;
        if (is_named(at, out))
            task->out = t, task->output = task->outputs;
        task->outputs++;
    }
    return task->input && task->output >= 0 && task->in.rank == 4;
}

static int read_labels(ek_task *task, const char *list) {
    int count = 0;
    for (const char *at = ek_json_first(list); at; at = ek_json_next(at))
        count++;
    task->label = calloc((size_t)count + 1, sizeof *task->label);
    for (const char *at = ek_json_first(list); task->label && at; at = ek_json_next(at))
        if (!(task->label[task->labels++] = ek_json_text(at)))
            return 0;
    return task->label != NULL;
}

static int read_values(const char *list, double to[COLORS]) {
    int count = 0;
    for (const char *at = ek_json_first(list); at && count < COLORS; at = ek_json_next(at))
        to[count++] = strtod(at, NULL);
    for (int c = 1; count == 1 && c < COLORS; c++)
        to[c] = *to;
    return count;
}

/* Mean and scale of each channel; values from 0 to 1 if the task states neither. */
static range range_of(const char *object) {
    range r = {{0, 0, 0}, {1, 1, 1}, 0};
    int mean = read_values(ek_json_value(object, "mean"), r.mean);
    int scale = read_values(ek_json_value(object, "scale"), r.scale);
    r.stated = mean || scale;
    for (int c = 0; !r.stated && c < COLORS; c++)
        r.scale[c] = 255;
    return r;
}

/* How bytes of a picture become elements of the input. */
static int set_range(ek_task *task, const range *r) {
    const tensor *in = &task->in;
    ek_picture *p = &task->picture;
    int last = in->shape[3] == 1 || in->shape[3] == COLORS;
    p->to_height = in->shape[last ? 1 : 2], p->to_width = in->shape[last ? 2 : 3];
    p->channels = in->shape[last ? 3 : 1], p->planes = !last;
    p->reversed = task->reversed, p->fill = task->fill;
    for (int c = 0; c < COLORS; c++) {
        p->factor[c] = (float)(1 / r->scale[c]), p->shift[c] = (float)(-r->mean[c] / r->scale[c]);
        for (int pixel = 0; pixel < BYTES; pixel++) {
            int64_t low = in->type == 's' ? -128 : 0, stored = pixel + low;
            if (in->quantized && r->stated) {
                double real = (pixel - r->mean[c]) / r->scale[c];
                stored = nearest(real / in->scale) + in->zero_point;
                stored = stored < low ? low : stored > low + 255 ? low + 255 : stored;
            }
            task->elements[BYTES * c + pixel] = (uint8_t)stored;
        }
    }
    p->table = in->bits == 8 ? task->elements : NULL;
    return (in->bits == 8 || (in->type == 'f' && in->bits == 32)) &&
           (p->channels == 1 || p->channels == COLORS);
}

static int read_task(ek_task *task, const char *object, const char *description) {
    char channels[NAME];
    const char *in = ek_json_value(object, "input"), *out = ek_json_value(object, "output");
    const char *fill = ek_json_value(object, "fill");
    copy_text(object, "kind", task->kind, sizeof task->kind);
    copy_text(object, "fit", task->fit, sizeof task->fit);
    copy_text(object, "channels", channels, sizeof channels);
    task->reversed = !strcmp(channels, "bgr");
    task->fill = fill ? atoi(fill) : 0;
    char *input = in ? ek_json_text(in) : NULL, *output = out ? ek_json_text(out) : NULL;
    int found = input && output && find_tensors(task, description, input, output);
    free(input), free(output);
    range r = range_of(object);
    return found && set_range(task, &r) && read_labels(task, ek_json_value(object, "labels"));
}

ek_task *ek_task_open(const char *manifest, const char *description, void *library) {
    /* No other object begins with this key. */
    const char *object = manifest ? strstr(manifest, "\"task\":{\"channels\":") : NULL;
    ek_task *task = object ? calloc(1, sizeof *task) : NULL;
    if (!task)
        return NULL;
    task->fit_picture = (int (*)(const ek_picture *, void *))dlsym(library, "ek_fit_picture");
    if (task->fit_picture && read_task(task, object, description))
        return task;
    ek_task_close(task);
    return NULL;
}

void ek_task_close(ek_task *task) {
    if (!task)
        return;
    for (int i = 0; i < task->labels; i++)
        free(task->label[i]);
    for (int i = 0; i < task->outputs; i++)
        free(task->results[i]);
    free(task->label);
    free(task->input);
    free(task);
}

int ek_task_is(const ek_task *task, const char *kind) {
    return task && !strcmp(task->kind, kind);
}

int ek_task_has_boxes(const ek_task *task) {
    return ek_task_is(task, "detect") || ek_task_is(task, "instances") || ek_task_is(task, "obb");
}

int ek_task_take(ek_task *task, const ek_frame *frame) {
    ek_picture *p = &task->picture;
    if (!frame->pixels || frame->width < 1 || frame->height < 1)
        return -1;
    p->pixels = frame->pixels, p->width = frame->width, p->height = frame->height;
    p->stride = frame->stride ? frame->stride : COLORS * p->width;
    p->left = p->top = 0, p->across = p->to_width, p->down = p->to_height;
    if (strcmp(task->fit, "stretch")) {
        double x = (double)p->to_width / (double)p->width;
        double y = (double)p->to_height / (double)p->height;
        double scale = strcmp(task->fit, "crop") ? (x < y ? x : y) : (x > y ? x : y);
        int64_t across = nearest((double)p->width * scale);
        int64_t down = nearest((double)p->height * scale);
        p->across = across < 1 ? 1 : across, p->down = down < 1 ? 1 : down;
        if (strcmp(task->fit, "corner")) {
            p->left = floor_half(p->to_width - p->across);
            p->top = floor_half(p->to_height - p->down);
        }
    }
    return task->fit_picture(p, task->input);
}

const void *const *ek_task_inputs(const ek_task *task) {
    return (const void *const *)&task->input;
}

void *const *ek_task_outputs(const ek_task *task) {
    return task->results;
}

static void put_label(const ek_task *task, int number, char label[EK_APP_LABEL_BYTES]) {
    *label = 0;
    if (number < task->labels)
        strncat(label, task->label[number], EK_APP_LABEL_BYTES - 1);
}

/* A coordinate of the input as one of the picture, which has `size` pixels that became `fitted`. */
static float in_picture(float at, int64_t start, int64_t fitted, int64_t size) {
    double found = ((double)at - (double)start) / ((double)fitted / (double)size);
    return (float)(found<0 ? 0 : found>(double) size ? (double)size : found);
}

/* The place of a result among the `most` best, of `size` bytes each, in order of the score at that
 * offset; NULL if it is not one of them. */
static void *place_for(float score, void *best, size_t size, size_t offset, int most, int *count) {
    char *first = best;
    int at = *count < most ? (*count)++ : most;
    for (; at > 0; at--) {
        float other;
        memcpy(&other, first + (size_t)(at - 1) * size + offset, sizeof other);
        if (!(other < score))
            break;
        if (at < most)
            memcpy(first + (size_t)at * size, first + (size_t)(at - 1) * size, size);
    }
    return at < most ? first + (size_t)at * size : NULL;
}

/* The box of a row of the output. Returns 0 if the row is empty. */
static int box_of(const ek_task *task, const float *row, ek_box *box) {
    const ek_picture *p = &task->picture;
    if (!(row[1] >= 0 && row[1] < MOST_CLASSES) || !((double)row[2] >= LEAST))
        return 0;
    *box = (ek_box){.left = in_picture(row[3], p->left, p->across, p->width),
                    .top = in_picture(row[4], p->top, p->down, p->height),
                    .right = in_picture(row[5], p->left, p->across, p->width),
                    .bottom = in_picture(row[6], p->top, p->down, p->height),
                    .score = row[2],
                    .number = (int)row[1]};
    put_label(task, box->number, box->label);
    return box->right > box->left && box->bottom > box->top;
}

static int boxes_of(const ek_task *task, ek_box *boxes, int most) {
    const float *row = task->results[task->output], *end = row + task->out.elements;
    const int64_t width = task->out.shape[task->out.rank - 1];
    int count = 0;
    for (ek_box box, *to; row < end; row += width)
        if (box_of(task, row, &box) &&
            (to = place_for(box.score, boxes, sizeof box, offsetof(ek_box, score), most, &count)))
            *to = box;
    return count;
}

static int poses_of(const ek_task *task, ek_pose *poses, int most) {
    const ek_picture *p = &task->picture;
    const float *row = task->results[task->output], *end = row + task->out.elements;
    int64_t width = task->out.shape[task->out.rank - 1], points = (width - FIELDS) / POINT_FIELDS;
    ek_box box;
    ek_pose *to;
    int count = 0;
    for (; row < end; row += width) {
        if (!box_of(task, row, &box) ||
            !(to = place_for(box.score, poses, sizeof *to, offsetof(ek_pose, box.score), most,
                             &count)))
            continue;
        to->box = box;
        to->points = (int)(points < EK_APP_POINTS ? points : EK_APP_POINTS);
        for (int i = 0; i < to->points; i++) {
            const float *at = row + FIELDS + POINT_FIELDS * i;
            to->point[i] = (ek_point){.x = in_picture(at[0], p->left, p->across, p->width),
                                      .y = in_picture(at[1], p->top, p->down, p->height),
                                      .score = at[2]};
        }
    }
    return count;
}

/* The cell of the map below the center of a pixel. The picture's `pixels` along an edge are
 * `fitted` of the input's `side`, from `start`. */
static int64_t cell_of(int64_t pixel, int64_t pixels, int64_t fitted, int64_t start, int64_t side,
                       int64_t cells) {
    double at = (double)start + ((double)pixel + 0.5) * (double)fitted / (double)pixels;
    int64_t cell = (int64_t)(at * (double)cells / (double)side);
    return cell < 0 ? 0 : cell < cells ? cell : cells - 1;
}

static int segments_of(const ek_task *task, uint8_t *classes) {
    const ek_picture *p = &task->picture;
    const uint8_t *map = task->results[task->output];
    int64_t rows = task->out.shape[1], columns = task->out.shape[2];
    for (int64_t y = 0; y < p->height; y++) {
        int64_t row = cell_of(y, p->height, p->down, p->top, p->to_height, rows);
        for (int64_t x = 0; x < p->width; x++) {
            int64_t column = cell_of(x, p->width, p->across, p->left, p->to_width, columns);
            classes[y * p->width + x] = map[row * columns + column];
        }
    }
    return 0;
}

static int classes_of(const ek_task *task, ek_class *classes, int most) {
    const tensor *t = &task->out;
    const void *values = task->results[task->output];
    int count = 0;
    for (int64_t i = 0; i < t->elements; i++) {
        double real = 0;
        if (t->type == 'f')
            real = ((const float *)values)[i];
        else {
            int64_t stored =
                t->type == 's' ? ((const int8_t *)values)[i] : ((const uint8_t *)values)[i];
            real = (double)(stored - t->zero_point) * t->scale;
        }
        int at = count < most ? count++ : most;
        for (; at > 0 && (double)classes[at - 1].score < real; at--)
            if (at < most)
                classes[at] = classes[at - 1];
        if (at < most) {
            classes[at] = (ek_class){.score = (float)real, .number = (int)i};
            put_label(task, (int)i, classes[at].label);
        }
    }
    return count;
}

int ek_task_results(const ek_task *task, void *into, int most) {
    if (ek_task_is(task, "segment"))
        return segments_of(task, into);
    if (ek_task_is(task, "pose"))
        return poses_of(task, into, most);
    return ek_task_has_boxes(task) ? boxes_of(task, into, most) : classes_of(task, into, most);
}
