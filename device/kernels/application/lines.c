/* Lines of text, from the characters that a model sees along a picture or a sound. Mirrors
 * device/runtime/agent/lines.py, pages.py and transcribe.py. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "task_parts.h"

enum { CALM = 32, EDGE = 6 };     /* levels in a gap; the part of a window's places at its ends */
static const double SEARCH = 0.4; /* of a piece, at its end: where a line may be cut */
static const double SPACE = 0.2;  /* of a line's height: a gap so wide is a space */
static const double LEAST_VARIANCE = 1e-7;

/* A text that grows. */
typedef struct {
    char *text;
    size_t bytes, room;
    int64_t count, seen; /* characters of it, and those that a model saw */
    double total;        /* the sum of their scores */
    int last, failed;    /* the number of the character before; there was no memory */
} writing;

static void add(writing *w, const char *more) {
    const size_t bytes = strlen(more), needed = w->bytes + bytes + 1;
    if (needed > w->room) {
        char *larger = realloc(w->text, 2 * needed);
        if (!larger) {
            w->failed = 1;
            return;
        }
        w->text = larger, w->room = 2 * needed;
    }
    memcpy(w->text + w->bytes, more, bytes + 1);
    w->bytes += bytes;
    for (const char *at = more; *at; at++)
        w->count += ((uint8_t)*at & 0xC0) != 0x80;
}

/* Leaves one space between words. */
static void squeeze(writing *w) {
    static const char spaces[] = " \t\n\r";
    char *to = w->text;
    for (const char *at = w->text; at && *(at += strspn(at, spaces));) {
        const size_t bytes = strcspn(at, spaces);
        if (to > w->text)
            *to++ = ' ';
        memmove(to, at, bytes);
        to += bytes, at += bytes;
    }
    w->bytes = (size_t)(to - w->text);
}

/* Hands out as many whole characters as there is room for; returns the bytes of the whole text, or
 * -1 if the text could not be written. */
static int64_t hand_out(ek_app *app, writing *w, int failed, char *text, size_t room) {
    size_t bytes = w->bytes < room ? w->bytes : room ? room - 1 : 0;
    while (bytes && bytes < w->bytes && ((uint8_t)w->text[bytes] & 0xC0) == 0x80)
        bytes--;
    if (room && text) {
        if (bytes)
            memcpy(text, w->text, bytes);
        text[bytes] = 0;
    }
    free(w->text);
    if (!failed && w->failed)
        return ek_app_fail(app, "expected memory for the text, found none; free some");
    return failed ? -1 : (int64_t)w->bytes;
}

/* Adds what rows say of places along a line: the same character at places that follow each other
 * counts once (Graves et al., 2006, on connectionist temporal classification). */
static void add_places(const ek_task *task, writing *w, const float *rows, int64_t count) {
    for (int64_t i = 0; i < count; i++, rows += CHARACTER_FIELDS) {
        const int number = (int)rows[0];
        if (number != w->last && number > 0 && number <= task->characters &&
            *task->character[number - 1]) {
            add(w, task->character[number - 1]);
            w->total += (double)rows[1], w->seen++;
        }
        w->last = number;
    }
}

/* A line of text in a picture, in pieces that the model takes. */
typedef struct {
    const ek_frame *line;
    ek_frame piece;
    int64_t start, pieces;
    int is_apart, is_done;
    writing *out;
    double scored; /* scores of pieces times their characters */
} reading;

/* The most levels between the pixels of a column, in any color. */
static int spread(const ek_frame *f, int64_t stride, int64_t x) {
    int most = 0;
    for (int c = 0; c < COLORS; c++) {
        int low = BYTES, high = 0;
        for (int64_t y = 0; y < f->height; y++) {
            const int level = f->pixels[y * stride + COLORS * x + c];
            low = level < low ? level : low, high = level > high ? level : high;
        }
        most = high - low > most ? high - low : most;
    }
    return most;
}

/* The middle and the width of the widest gap between these columns, the last one of several; if
 * there is none, the column that differs least from top to bottom. */
static int64_t gap_in(const ek_frame *f, int64_t stride, int64_t low, int64_t high,
                      int64_t *width) {
    int64_t best = high, run = 0, calmest = high;
    int least = BYTES;
    *width = 0;
    for (int64_t x = low; x < high; x++) {
        const int level = spread(f, stride, x);
        if (level <= least)
            least = level, calmest = x + 1;
        run = level <= CALM ? run + 1 : 0;
        if (run >= (*width > 1 ? *width : 1))
            best = x + 1 - run / 2, *width = run;
    }
    return *width ? best : calmest;
}

static int is_written(const ek_frame *f, int64_t stride, int64_t from) {
    for (int64_t x = from; x < f->width; x++)
        if (spread(f, stride, x) > CALM)
            return 1;
    return 0;
}

static int takes_lines(const ek_task *task, const void *context) {
    (void)context;
    return ek_task_is(task, "ocr") && task->characters > 0;
}

static int take_piece(ek_task *task, void *context, char *error) {
    reading *r = context;
    const ek_frame *f = r->line;
    const int64_t stride = f->stride ? f->stride : COLORS * f->width;
    const ek_picture *p = &task->picture;
    if (!f->pixels || f->width < 1 || f->height < 1)
        return ek_task_take(task, f, error);
    const double aspect = (double)p->to_width / (double)p->to_height;
    int64_t most = (int64_t)(aspect * (double)f->height), end = f->width, gap = 0;
    most = most < 1 ? 1 : most;
    r->is_done = f->width - r->start <= most;
    if (r->is_done && r->pieces && !is_written(f, stride, r->start))
        return 1;
    if (!r->is_done)
        end = gap_in(f, stride, r->start + most - (int64_t)(SEARCH * (double)most), r->start + most,
                     &gap);
    if (r->is_apart && r->out->bytes && r->out->text[r->out->bytes - 1] != ' ')
        add(r->out, " ");
    r->piece = (ek_frame){f->pixels + COLORS * r->start, end - r->start, f->height, stride};
    r->start = end, r->is_apart = (double)gap >= SPACE * (double)f->height, r->pieces++;
    return ek_task_take(task, &r->piece, error);
}

static int give_piece(ek_task *task, void *context, char *error) {
    reading *r = context;
    writing *w = r->out;
    const int64_t before = w->count, seen = w->seen;
    const double total = w->total;
    (void)error;
    w->last = 0;
    add_places(task, w, task->results[task->output], task->out.elements / CHARACTER_FIELDS);
    if (w->seen > seen)
        r->scored += (w->total - total) / (double)(w->seen - seen) * (double)(w->count - before);
    return r->is_done ? 0 : EK_AGAIN;
}

int64_t ek_app_ocr(ek_app *app, const ek_frame *frame, char *text, size_t bytes, float *score) {
    writing out = {0};
    reading r = {.line = frame, .out = &out};
    const ek_use use = {"ocr", &r, takes_lines, take_piece, give_piece};
    const int failed = ek_app_use(app, &use) < 0;
    if (score)
        *score = out.count ? (float)(r.scored / (double)out.count) : 0;
    return hand_out(app, &out, failed, text, bytes);
}

/* Sound in windows, of which each place counts once. */
typedef struct {
    const float *samples;
    int64_t count, start, first, last;
    int is_begun, is_done;
    writing *out;
} hearing;

static int writes_down(const ek_task *task, const void *context) {
    (void)context;
    return ek_task_is(task, "transcribe") && task->characters > 0;
}

static double root(double value) { /* without libm, by Newton's steps from above */
    double at = value > 1 ? value : 1;
    for (double next; (next = (at + value / at) / 2) < at;)
        at = next;
    return at;
}

/* The samples of a window with mean 0 and variance 1. */
static void normalize(const float *from, int64_t count, float *to) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)from[i];
    const double mean = count ? sum / (double)count : 0;
    for (int64_t i = 0; i < count; i++) {
        to[i] = (float)((double)from[i] - mean);
        squares += (double)to[i] * (double)to[i];
    }
    const double variance = count ? squares / (double)count : 0;
    const double factor = 1 / root(variance + LEAST_VARIANCE);
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)((double)to[i] * factor);
}

/* Convolutions without padding have one place less than there are steps in a window. */
static int take_window(ek_task *task, void *context, char *error) {
    hearing *h = context;
    const int64_t window = task->in.elements, places = task->out.elements / CHARACTER_FIELDS;
    const int64_t step = (window + places) / (places + 1);
    const int64_t edge = h->count > window ? places / EDGE : 0;
    (void)error;
    if (h->is_begun)
        h->start += (places - 2 * edge) * step, h->first = edge;
    h->is_begun = 1;
    h->is_done = h->start + window >= h->count;
    h->last = places - edge;
    if (h->is_done) {
        const int64_t left = (h->count - h->start + step - 1) / step;
        h->last = left < places ? left : places;
        h->last = h->last < h->first ? h->first : h->last;
    }
    const int64_t rest = h->count - h->start, used = rest < window ? rest : window;
    float *to = task->blocks[task->input];
    if (!strcmp(task->fit, "normalized"))
        normalize(h->samples + h->start, used, to);
    else
        memcpy(to, h->samples + h->start, sizeof *to * (size_t)used);
    memset(to + used, 0, sizeof *to * (size_t)(window - used));
    return 0;
}

static int give_window(ek_task *task, void *context, char *error) {
    hearing *h = context;
    const float *rows = task->results[task->output];
    (void)error;
    add_places(task, h->out, rows + CHARACTER_FIELDS * h->first, h->last - h->first);
    return h->is_done ? 0 : EK_AGAIN;
}

int64_t ek_app_transcribe(ek_app *app, const float *samples, int64_t count, char *text,
                          size_t bytes, float *score) {
    writing out = {0};
    hearing h = {.samples = samples, .count = count < 0 ? 0 : count, .out = &out};
    const ek_use use = {"transcribe that scores characters", &h, writes_down, take_window,
                        give_window};
    const int failed = ek_app_use(app, &use) < 0;
    if (score)
        *score = out.seen ? (float)(out.total / (double)out.seen) : 0;
    squeeze(&out);
    return hand_out(app, &out, failed, text, bytes);
}
