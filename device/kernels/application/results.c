#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "task_parts.h"

enum { MOST_CLASSES = 1 << 24 };          /* f32 counts no further */
static const double LEAST = 0.25;         /* score of a box */
static const double MOST = 1.05;          /* quantized shares may be a little above 1 */
static const double MOST_PART = 0.01;     /* by which a number of a class is not whole */
static const double MOST_TURNED = 0.0625; /* of a picture, by which edges may be turned */

void ek_put_label(const ek_task *task, int number, char label[EK_APP_LABEL_BYTES]) {
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

static int is_empty(const float *row) {
    return !(row[1] >= 0 && row[1] < MOST_CLASSES) || !((double)row[2] >= LEAST);
}

/* The box of a row of the output. Returns 0 if the row is empty. */
static int box_of(const ek_task *task, const float *row, ek_box *box) {
    const ek_picture *p = &task->picture;
    if (is_empty(row))
        return 0;
    *box = (ek_box){.left = in_picture(row[3], p->left, p->across, p->width),
                    .top = in_picture(row[4], p->top, p->down, p->height),
                    .right = in_picture(row[5], p->left, p->across, p->width),
                    .bottom = in_picture(row[6], p->top, p->down, p->height),
                    .score = row[2],
                    .number = (int)(row[1] + 0.5f)};
    ek_put_label(task, box->number, box->label);
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

int64_t ek_cell(int64_t pixel, int64_t pixels, int64_t fitted, int64_t start, int64_t side,
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
        int64_t row = ek_cell(y, p->height, p->down, p->top, p->to_height, rows);
        for (int64_t x = 0; x < p->width; x++) {
            int64_t column = ek_cell(x, p->width, p->across, p->left, p->to_width, columns);
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
            ek_put_label(task, (int)i, classes[at].label);
        }
    }
    return count;
}

/* The corners of rotated boxes, where poses have points. */
static int rotated_of(const ek_task *task, ek_rotated *rotated, int most) {
    const ek_picture *p = &task->picture;
    const double x = (double)p->across / (double)p->width, y = (double)p->down / (double)p->height;
    const float *row = task->results[task->output], *end = row + task->out.elements;
    const int64_t width = task->out.shape[task->out.rank - 1];
    ek_box box;
    ek_rotated *to;
    int count = 0;
    for (; row < end; row += width) {
        if (!box_of(task, row, &box) ||
            !(to = place_for(box.score, rotated, sizeof *to, offsetof(ek_rotated, box.score), most,
                             &count)))
            continue;
        to->box = box;
        for (int i = 0; i < EK_APP_CORNERS; i++) {
            const float *at = row + FIELDS + POINT_FIELDS * i;
            to->x[i] = (float)(((double)at[0] - (double)p->left) / x);
            to->y[i] = (float)(((double)at[1] - (double)p->top) / y);
        }
    }
    return count;
}

/* How cells of a mask lie along an edge of the picture: pixel p is at start + (p + 0.5) * step,
 * where whole numbers are the centers of cells. */
typedef struct {
    double start, step;
    int64_t cells;
} edge;

static edge edge_of(int64_t start, int64_t fitted, int64_t pixels, int64_t side, int64_t cells) {
    const double share = (double)cells / (double)side;
    return (edge){(double)start * share - 0.5, (double)fitted / (double)pixels * share, cells};
}

/* The cell before a pixel, and how far the pixel is from it to the next one; beyond the outer
 * centers, values are theirs. */
static int64_t before(const edge *e, int64_t pixel, double *share) {
    double at = e->start + ((double)pixel + 0.5) * e->step;
    double last = (double)(e->cells - 1);
    at = at < 0 ? 0 : at > last ? last : at;
    int64_t cell = (int64_t)at;
    if (cell > e->cells - 2)
        cell = e->cells > 1 ? e->cells - 2 : 0;
    *share = at - (double)cell;
    return cell;
}

static int64_t first_center(float at) { /* of the pixels from there on */
    const double low = (double)at - 0.5;
    const int64_t whole = (int64_t)low;
    return whole + ((double)whole < low);
}

/* Writes 1 for the pixels whose centers are in the box and where the mask is above 0. */
static void mask_of(const ek_task *task, const ek_box *box, const int8_t *mask, uint8_t *into) {
    const ek_picture *p = &task->picture;
    const int64_t rows = task->mask.shape[1], columns = task->mask.shape[2];
    const edge across = edge_of(p->left, p->across, p->width, p->to_width, columns);
    const edge down = edge_of(p->top, p->down, p->height, p->to_height, rows);
    const int64_t next_row = rows > 1 ? columns : 0, next = columns > 1;
    memset(into, 0, (size_t)(p->width * p->height));
    for (int64_t y = first_center(box->top); y < first_center(box->bottom); y++) {
        double low, right;
        const int8_t *line = mask + before(&down, y, &low) * columns;
        for (int64_t x = first_center(box->left); x < first_center(box->right); x++) {
            const int8_t *at = line + before(&across, x, &right);
            const double a = at[0] + low * (at[next_row] - at[0]);
            const double b = at[next] + low * (at[next_row + next] - at[next]);
            into[y * p->width + x] = a + right * (b - a) > 0;
        }
    }
}

/* Boxes, and the masks of their rows: `found` are the boxes with the numbers of their rows. */
static int objects_of(const ek_task *task, ek_box *boxes, uint8_t *masks, int most) {
    typedef struct {
        ek_box box;
        int64_t row;
    } found;
    const float *rows = task->results[task->output];
    const int64_t width = task->out.shape[task->out.rank - 1], total = task->out.elements / width;
    const int64_t cells = task->mask.elements / task->mask.shape[0];
    found *best = calloc(most > 0 ? (size_t)most : 1, sizeof *best), *to;
    int count = 0;
    for (int64_t i = 0; best && i < total; i++) {
        ek_box box;
        if (box_of(task, rows + i * width, &box) &&
            (to = place_for(box.score, best, sizeof *to, offsetof(found, box.score), most, &count)))
            *to = (found){box, i};
    }
    const int64_t pixels = task->picture.width * task->picture.height;
    for (int i = 0; i < count; i++) {
        boxes[i] = best[i].box;
        if (masks)
            mask_of(task, &best[i].box,
                    (const int8_t *)task->results[task->masks] + best[i].row * cells,
                    masks + i * pixels);
    }
    free(best);
    return best ? count : -1;
}

/* Whether a row has a score above 1, a number of a class that is not whole, or edges in the wrong
 * order: then outputs are not decoded as the model means them. */
static int are_odd(const ek_task *task, char *error) {
    const ek_picture *p = &task->picture;
    const float *row = task->results[task->output], *end = row + task->out.elements;
    const int64_t width = task->out.shape[task->out.rank - 1];
    for (; row < end; row += width) {
        if (is_empty(row))
            continue;
        const double class = row[1], part = class - (double)(int64_t)(class + 0.5);
        const double wide = (double)row[5] - (double)row[3], tall = (double)row[6] - (double)row[4];
        const int high = (double)row[2] > MOST, whole = part <= MOST_PART && part >= -MOST_PART;
        const int turned =
            wide < -MOST_TURNED * (double)p->across || tall < -MOST_TURNED * (double)p->down;
        if (!high && whole && !turned)
            continue;
        const char *expected = "boxes of a width and height above 0";
        double found = wide < tall ? wide : tall;
        if (high)
            expected = "scores from 0 to 1", found = row[2];
        else if (!whole)
            expected = "whole numbers of classes", found = class;
        snprintf(error, EK_TASK_ERROR,
                 "expected %s, found %g: these outputs are not decoded as the model means them; "
                 "name its --head, or compile it with --task none",
                 expected, found);
        return 1;
    }
    return 0;
}

static int vector_of(const ek_task *task, float *vector, int most) {
    const int64_t total = task->out.elements;
    memcpy(vector, task->results[task->output],
           sizeof *vector * (size_t)(most < total ? (most < 0 ? 0 : most) : total));
    return (int)total;
}

/* What is asked of a picture, and where its results go: ek_box, ek_pose, ek_rotated, ek_class,
 * bytes or floats; masks are for instances. */
typedef struct {
    const char *kind;
    const ek_frame *frame;
    void *into;
    uint8_t *masks;
    int most;
} query;

static int has_boxes(const char *kind) {
    return !strcmp(kind, "detect") || !strcmp(kind, "instances") || !strcmp(kind, "obb");
}

static int is_for(const ek_task *task, const void *context) {
    const query *q = context;
    if (task && task->rate > 0)
        return 0; /* it takes sound */
    return strcmp(q->kind, "detect") ? ek_task_is(task, q->kind) : has_boxes(task->kind);
}

static int take_frame(ek_task *task, void *context, char *error) {
    return ek_task_take(task, ((const query *)context)->frame, error);
}

static int give_results(ek_task *task, void *context, char *error) {
    const query *q = context;
    if (!strcmp(q->kind, "segment"))
        return segments_of(task, q->into);
    if (!strcmp(q->kind, "classify"))
        return classes_of(task, q->into, q->most);
    if (!strcmp(q->kind, "embed"))
        return vector_of(task, q->into, q->most);
    if (are_odd(task, error))
        return -1;
    if (!strcmp(q->kind, "pose"))
        return poses_of(task, q->into, q->most);
    if (!strcmp(q->kind, "obb"))
        return rotated_of(task, q->into, q->most);
    if (!strcmp(q->kind, "instances"))
        return objects_of(task, q->into, q->masks, q->most);
    return boxes_of(task, q->into, q->most);
}

static int answer(ek_app *app, query asked) {
    const char *kind = asked.kind;
    const ek_use use = {
        .option = !strcmp(kind, "obb")         ? "detect"
                  : !strcmp(kind, "instances") ? "segment"
                                               : kind,
        .context = &asked,
        .fits = is_for,
        .take = take_frame,
        .give = give_results,
    };
    return ek_app_use(app, &use);
}

int ek_app_detect(ek_app *app, const ek_frame *frame, ek_box *boxes, int most) {
    return answer(app, (query){"detect", frame, boxes, NULL, most});
}

int ek_app_classify(ek_app *app, const ek_frame *frame, ek_class *classes, int most) {
    return answer(app, (query){"classify", frame, classes, NULL, most});
}

int ek_app_pose(ek_app *app, const ek_frame *frame, ek_pose *poses, int most) {
    return answer(app, (query){"pose", frame, poses, NULL, most});
}

int ek_app_obb(ek_app *app, const ek_frame *frame, ek_rotated *rotated, int most) {
    return answer(app, (query){"obb", frame, rotated, NULL, most});
}

int ek_app_instances(ek_app *app, const ek_frame *frame, ek_box *boxes, uint8_t *masks, int most) {
    return answer(app, (query){"instances", frame, boxes, masks, most});
}

int ek_app_segment(ek_app *app, const ek_frame *frame, uint8_t *classes) {
    return answer(app, (query){"segment", frame, classes, NULL, 0});
}

int ek_app_embed(ek_app *app, const ek_frame *frame, float *vector, int most) {
    return answer(app, (query){"embed", frame, vector, NULL, most});
}
