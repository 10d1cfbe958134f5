#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
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

int64_t ek_nearest(double value) { /* without libm */
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
    copy_text(object, "name", t.name, sizeof t.name);
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

static void *block(const tensor *t) {
    void *made = NULL;
    size_t size = (size_t)(t->elements * t->bits / 8);
    return posix_memalign(&made, ALIGNMENT, size ? size : 1) ? NULL : memset(made, 0, size);
}

/* Reads the tensors of a list, and allocates them; returns their number, or -1. */
static int read_tensors(const char *list, tensor *to, void **blocks, int most) {
    int count = 0;
    for (const char *at = ek_json_first(list); at; at = ek_json_next(at)) {
        if (count == most)
            return -1;
        to[count] = tensor_of(at);
        if (!(blocks[count] = block(&to[count])))
            return -1;
        count++;
    }
    return count;
}

static int number_of(const tensor *tensors, int count, const char *name) {
    while (count-- > 0)
        if (!strcmp(tensors[count].name, name))
            return count;
    return -1;
}

/* Finds input and output of these names, and memory for all tensors. */
static int find_tensors(ek_task *task, const char *object, const char *description) {
    char in[TENSOR_NAME], out[TENSOR_NAME], masks[TENSOR_NAME];
    copy_text(object, "input", in, sizeof in);
    copy_text(object, "output", out, sizeof out);
    copy_text(object, "masks", masks, sizeof masks);
    task->inputs =
        read_tensors(ek_json_value(description, "inputs"), task->ins, task->blocks, MOST_INPUTS);
    task->outputs = read_tensors(ek_json_value(description, "outputs"), task->outs, task->results,
                                 MOST_OUTPUTS);
    task->input = number_of(task->ins, task->inputs, in);
    task->output = number_of(task->outs, task->outputs, out);
    task->masks = *masks ? number_of(task->outs, task->outputs, masks) : -1;
    if (task->input < 0 || task->output < 0)
        return 0;
    task->in = task->ins[task->input], task->out = task->outs[task->output];
    if (task->masks >= 0)
        task->mask = task->outs[task->masks];
    for (int i = 0; i < task->inputs; i++)
        task->given[i] = task->blocks[i];
    return 1;
}

/* Whether results have what the kind needs. */
static int has_parts(const ek_task *task) {
    const int64_t fields = task->out.shape[task->out.rank > 0 ? task->out.rank - 1 : 0];
    if (!strcmp(task->kind, "instances"))
        return task->masks >= 0 && task->mask.rank == 3 && task->mask.elements > 0;
    if (!strcmp(task->kind, "image"))
        return task->out.rank == 4 && task->out.type == 'u' && task->out.bits == 8;
    return strcmp(task->kind, "obb") || fields >= FIELDS + POINT_FIELDS * EK_APP_CORNERS;
}

/* Reads a list of texts; returns their number, or -1. */
static int read_texts(const char *list, char ***to) {
    int count = 0;
    for (const char *at = ek_json_first(list); at; at = ek_json_next(at))
        count++;
    *to = calloc((size_t)count + 1, sizeof **to);
    const char *at = ek_json_first(list);
    for (int i = 0; *to && i < count; i++, at = ek_json_next(at))
        if (!((*to)[i] = ek_json_text(at)))
            return -1;
    return *to ? count : -1;
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
                stored = ek_nearest(real / in->scale) + in->zero_point;
                stored = stored < low ? low : stored > low + 255 ? low + 255 : stored;
            }
            task->elements[BYTES * c + pixel] = (uint8_t)stored;
        }
    }
    p->table = in->bits == 8 ? task->elements : NULL;
    return (in->bits == 8 || (in->type == 'f' && in->bits == 32)) &&
           (p->channels == 1 || p->channels == COLORS);
}

static int is_sound(const ek_task *task) {
    return task->rate > 0;
}

/* What the kind of input needs. */
static int has_input(ek_task *task, const char *object) {
    if (is_sound(task))
        return 1;
    range r = range_of(object);
    return task->inputs == 1 && task->in.rank == 4 && task->fit_picture &&
           (!task->filter || task->filter_picture) && set_range(task, &r);
}

static int read_characters(ek_task *task, const char *object, const ek_release_files *files) {
    char name[TENSOR_NAME];
    copy_text(object, "characters", name, sizeof name);
    char *text = *name ? ek_read_open(ek_files_find(files, name), NULL) : NULL;
    const char *list = text ? ek_json_value(text, "characters") : NULL;
    task->characters = list ? read_texts(list, &task->character) : 0;
    free(text);
    return task->characters >= 0;
}

static int read_task(ek_task *task, const char *object, const char *description,
                     const ek_release_files *files) {
    char channels[NAME], filter[NAME];
    const char *fill = ek_json_value(object, "fill"), *rate = ek_json_value(object, "rate");
    const char *state = ek_json_value(description, "state_bytes");
    copy_text(object, "kind", task->kind, sizeof task->kind);
    copy_text(object, "fit", task->fit, sizeof task->fit);
    copy_text(object, "channels", channels, sizeof channels);
    copy_text(object, "filter", filter, sizeof filter);
    task->filter = !strcmp(filter, "bicubic") ? EK_CUBIC : *filter ? EK_LINEAR : 0;
    task->reversed = !strcmp(channels, "bgr");
    task->fill = fill ? atoi(fill) : 0;
    task->rate = rate ? atoi(rate) : 0;
    task->stateful = state && atoll(state) > 0;
    const char *zoom = ek_json_value(object, "zoom");
    task->zoom = zoom ? strtod(zoom, NULL) : 1;
    task->labels = read_texts(ek_json_value(object, "labels"), &task->label);
    return task->labels >= 0 && find_tensors(task, object, description) && has_parts(task) &&
           has_input(task, object) && read_characters(task, object, files);
}

ek_task *ek_task_open(const char *manifest, const char *description, void *library,
                      const ek_release_files *files) {
    /* No other object begins with this key. */
    const char *found = manifest ? strstr(manifest, "\"task\":{\"channels\":") : NULL;
    ek_task *task = found ? calloc(1, sizeof *task) : NULL;
    if (!task)
        return NULL;
    found += sizeof "\"task\":{" - 1;
    char *object = strndup(found, (size_t)(ek_json_end(found - 1) - found));
    task->fit_picture = (int (*)(const ek_picture *, void *))dlsym(library, "ek_fit_picture");
    task->filter_picture =
        (int (*)(const ek_picture *, ek_filter, void *))dlsym(library, "ek_filter_picture");
    const int works = object && read_task(task, object, description, files);
    free(object);
    if (works)
        return task;
    ek_task_close(task);
    return NULL;
}

static void free_texts(char **texts) {
    for (char **at = texts; at && *at; at++)
        free(*at);
    free(texts);
}

void ek_task_close(ek_task *task) {
    if (!task)
        return;
    for (int i = 0; i < MOST_INPUTS; i++)
        free(task->blocks[i]);
    for (int i = 0; i < MOST_OUTPUTS; i++)
        free(task->results[i]);
    free_texts(task->label);
    free_texts(task->character);
    free(task);
}

int ek_task_is(const ek_task *task, const char *kind) {
    return task && !strcmp(task->kind, kind);
}

const char *ek_task_option(const char *kind) {
    return !strcmp(kind, "obb") ? "detect" : !strcmp(kind, "instances") ? "segment" : kind;
}

int ek_task_take(ek_task *task, const ek_frame *frame, char *error) {
    ek_picture *p = &task->picture;
    if (!frame->pixels || frame->width < 1 || frame->height < 1)
        return snprintf(error, EK_TASK_ERROR,
                        "expected a picture of at least 1 x 1 pixels, found none"),
               -1;
    p->pixels = frame->pixels, p->width = frame->width, p->height = frame->height;
    p->stride = frame->stride ? frame->stride : COLORS * p->width;
    p->across = (int64_t)((double)p->to_width * task->zoom + TINY);
    p->down = (int64_t)((double)p->to_height * task->zoom + TINY);
    if (!strcmp(task->fit, "crop")) {
        if (p->to_width * p->height >= p->to_height * p->width)
            p->down = p->height * p->across / p->width;
        else
            p->across = p->width * p->down / p->height;
    } else if (!strcmp(task->fit, "line")) {
        const int64_t across = (p->to_height * p->width + p->height - 1) / p->height;
        p->across = across < p->to_width ? across : p->to_width;
    } else if (strcmp(task->fit, "stretch")) {
        double x = (double)p->to_width / (double)p->width;
        double y = (double)p->to_height / (double)p->height, scale = (x < y ? x : y) * task->zoom;
        int64_t across = ek_nearest((double)p->width * scale);
        int64_t down = ek_nearest((double)p->height * scale);
        p->across = across < 1 ? 1 : across, p->down = down < 1 ? 1 : down;
    }
    p->left = p->top = 0;
    if (strcmp(task->fit, "corner") && strcmp(task->fit, "line")) {
        p->left = (p->to_width - p->across) / 2;
        p->top = (p->to_height - p->down) / 2;
    }
    void *input = task->blocks[task->input];
    return task->filter ? task->filter_picture(p, task->filter, input)
                        : task->fit_picture(p, input);
}

const void *const *ek_task_inputs(const ek_task *task) {
    return task->given;
}

void *const *ek_task_outputs(const ek_task *task) {
    return task->results;
}
