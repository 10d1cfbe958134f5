#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "integrity.h"
#include "json.h"
#include "task_parts.h"

enum { ALIGNMENT = 64 };
static const double TINY = 1e-6; /* of a pixel */

typedef struct {
    double mean[COLORS], scale[COLORS];
    int stated;
} range;

static int64_t nearest(double value) { /* halves to even, without libm */
    int64_t low = (int64_t)value - (value < (double)(int64_t)value);
    double rest = value - (double)low;
    return low + (rest > 0.5 || (rest == 0.5 && low % 2));
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
static int find_tensors(ek_task *task, const char *description, const char *in, const char *out,
                        const char *masks) {
    const char *at = ek_json_first(ek_json_value(description, "inputs"));
    if (!at || !is_named(at, in) || ek_json_next(at))
        return 0;
    task->in = tensor_of(at);
    task->input = block(&task->in);
    task->output = task->masks = -1;
    for (at = ek_json_first(ek_json_value(description, "outputs")); at; at = ek_json_next(at)) {
        tensor t = tensor_of(at);
        if (task->outputs == MOST_OUTPUTS || !(task->results[task->outputs] = block(&t)))
            return 0;
        if (is_named(at, out))
            task->out = t, task->output = task->outputs;
        else if (is_named(at, masks))
            task->mask = t, task->masks = task->outputs;
        task->outputs++;
    }
    return task->input && task->output >= 0 && task->in.rank == 4;
}

/* Whether results have what the kind needs. */
static int has_parts(const ek_task *task) {
    const int64_t fields = task->out.shape[task->out.rank > 0 ? task->out.rank - 1 : 0];
    if (!strcmp(task->kind, "instances"))
        return task->masks >= 0 && task->mask.rank == 3 && task->mask.elements > 0;
    return strcmp(task->kind, "obb") || fields >= FIELDS + POINT_FIELDS * EK_APP_CORNERS;
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
    const char *zoom = ek_json_value(object, "zoom");
    task->zoom = zoom ? strtod(zoom, NULL) : 1;
    const char *mask = ek_json_value(object, "masks");
    char *input = in ? ek_json_text(in) : NULL, *output = out ? ek_json_text(out) : NULL;
    char *masks = mask ? ek_json_text(mask) : NULL;
    int found =
        input && output && find_tensors(task, description, input, output, masks ? masks : "");
    free(input), free(output), free(masks);
    range r = range_of(object);
    return found && has_parts(task) && set_range(task, &r) &&
           read_labels(task, ek_json_value(object, "labels"));
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

const char *ek_task_option(const char *kind) {
    return !strcmp(kind, "obb") ? "detect" : !strcmp(kind, "instances") ? "segment" : kind;
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
    p->across = (int64_t)((double)p->to_width * task->zoom + TINY);
    p->down = (int64_t)((double)p->to_height * task->zoom + TINY);
    if (!strcmp(task->fit, "crop")) {
        if (p->to_width * p->height >= p->to_height * p->width)
            p->down = p->height * p->across / p->width;
        else
            p->across = p->width * p->down / p->height;
    } else if (strcmp(task->fit, "stretch")) {
        double x = (double)p->to_width / (double)p->width;
        double y = (double)p->to_height / (double)p->height, scale = (x < y ? x : y) * task->zoom;
        int64_t across = nearest((double)p->width * scale);
        int64_t down = nearest((double)p->height * scale);
        p->across = across < 1 ? 1 : across, p->down = down < 1 ? 1 : down;
    }
    p->left = p->top = 0;
    if (strcmp(task->fit, "corner")) {
        p->left = (p->to_width - p->across) / 2;
        p->top = (p->to_height - p->down) / 2;
    }
    return task->fit_picture(p, task->input);
}

const void *const *ek_task_inputs(const ek_task *task) {
    return (const void *const *)&task->input;
}

void *const *ek_task_outputs(const ek_task *task) {
    return task->results;
}
