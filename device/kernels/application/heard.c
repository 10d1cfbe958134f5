/* Words, or speech, that a model hears in windows of sound. Mirrors
 * device/runtime/agent/listening.py. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "task_parts.h"

enum { OVERLAP = 4 }; /* a word is looked for in windows that begin after a quarter of the last */
static const double ON = 0.5, OFF = 0.35; /* scores at which something begins, and ends */
static const double GAP = 0.1, LEAST = 0.25, MARGIN = 0.03; /* seconds: silence, speech, around */

/* Follows the score of a class: it begins at ON, and ends after a gap below OFF. */
typedef struct {
    int is_on;
    double start, end, best;
} gate;

struct ek_listener {
    ek_app *app;
    int is_vad, rate, inputs, carried[MOST_INPUTS]; /* the output that becomes an input, or -1 */
    int sound, overlaps, has_last, is_padded;
    int ends; /* the last window ends where the sound does */
    int64_t window, step, classes;
    tensor kind;             /* of the window */
    float *samples;          /* that no window has taken whole */
    float *earlier;          /* those before them, as many as are in a window, if it `ends` */
    int64_t count, room;     /* of them */
    int64_t first, heard_to; /* the place of the first one in the sound; the last window's end */
    void *given[MOST_INPUTS];
    double *scores, *before;
    gate *gates;
    ek_heard *queue;
    int queued, queue_room, failed;
};

static int listens(const ek_task *task, const void *context) {
    (void)context;
    return ek_task_is(task, "keyword") || ek_task_is(task, "vad");
}

/* Samples of the last window that Silero's models see again. */
static int64_t context_of(int64_t window) {
    return window == 576 ? 64 : window == 288 ? 32 : 0;
}

static int is_alike(const tensor *a, const tensor *b) {
    return a->type == b->type && a->bits == b->bits && a->rank == b->rank &&
           !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->rank);
}

/* Whether `end` is the name of `start`, and something that says it comes later. */
static int is_later(const char *start, const char *end) {
    const size_t length = strlen(start);
    return !strncasecmp(start, end, length) &&
           (!strcasecmp(end + length, "n") || !strcasecmp(end + length, "_out"));
}

/* The outputs that become inputs of the next window: by name, else those of equal shapes in the
 * same order. */
static void find_states(ek_listener *l, const ek_task *task) {
    int used[MOST_OUTPUTS] = {0};
    used[task->output] = 1;
    for (int by_name = 1; by_name >= 0; by_name--)
        for (int i = 0; i < task->inputs; i++)
            for (int o = 0; o < task->outputs; o++)
                if (i != task->input && l->carried[i] < 0 && !used[o] &&
                    is_alike(&task->ins[i], &task->outs[o]) &&
                    (!by_name || is_later(task->ins[i].name, task->outs[o].name)))
                    l->carried[i] = o, used[o] = 1;
}

static size_t bytes_of(const tensor *t) {
    return (size_t)(t->elements * t->bits / 8);
}

/* Fills an input that is neither sound nor state: an integer is the sample rate. */
static void put_rate(const tensor *t, int rate, void *to) {
    for (int64_t i = 0; i < t->elements; i++)
        if (t->type == 'f')
            ((float *)to)[i] = (float)rate;
        else if (t->bits == 64)
            ((int64_t *)to)[i] = rate;
        else if (t->bits == 32)
            ((int32_t *)to)[i] = rate;
}

/* Reads what the listener needs of the model. */
static int take_model(ek_task *task, void *context, char *error) {
    ek_listener *l = context;
    int states = 0;
    l->is_vad = ek_task_is(task, "vad"), l->rate = task->rate, l->kind = task->in;
    l->inputs = task->inputs, l->sound = task->input, l->window = task->in.elements;
    l->classes = task->out.elements;
    for (int i = 0; i < MOST_INPUTS; i++)
        l->carried[i] = -1;
    find_states(l, task);
    for (int i = 0; i < l->inputs; i++) {
        const size_t bytes = bytes_of(&task->ins[i]);
        states += l->carried[i] >= 0;
        l->failed |= !(l->given[i] = calloc(1, bytes ? bytes : 1));
        if (l->given[i] && i != l->sound && l->carried[i] < 0)
            put_rate(&task->ins[i], l->rate, l->given[i]);
    }
    const int64_t context_size = l->is_vad ? context_of(l->window) : 0;
    l->overlaps = !l->is_vad && !task->stateful && !states;
    l->step = l->overlaps ? l->window / OVERLAP : l->window - context_size;
    l->step = l->step < 1 ? 1 : l->step;
    l->ends = !strcmp(task->fit, "last");
    l->overlaps = l->overlaps && l->step < l->window && !l->ends;
    l->count = context_size, l->room = l->window + context_size, l->first = -context_size;
    l->samples = calloc((size_t)l->room + 1, sizeof *l->samples);
    l->earlier = calloc((size_t)(l->ends ? l->window : 0) + 1, sizeof *l->earlier);
    l->scores = calloc((size_t)l->classes + 1, sizeof *l->scores);
    l->before = calloc((size_t)l->classes + 1, sizeof *l->before);
    l->gates = calloc((size_t)l->classes + 1, sizeof *l->gates);
    l->failed |= !l->samples || !l->earlier || !l->scores || !l->before || !l->gates;
    if (l->failed)
        snprintf(error, EK_TASK_ERROR, "expected memory for a listener, found none; free some");
    return l->failed ? -1 : 1;
}

/* The window as values of the input. */
static void put_window(ek_listener *l) {
    const tensor *t = &l->kind;
    void *to = l->given[l->sound];
    const int64_t high = ((int64_t)1 << (t->bits - (t->type == 's'))) - 1;
    const int64_t low = t->type == 's' ? -high - 1 : 0;
    if (t->type == 'f') {
        memcpy(to, l->samples, sizeof *l->samples * (size_t)l->window);
        return;
    }
    const double scale = t->quantized ? t->scale : 1.0 / (double)(high + 1);
    for (int64_t i = 0; i < l->window; i++) {
        int64_t code = ek_nearest((double)l->samples[i] / scale) + t->zero_point;
        code = code < low ? low : code > high ? high : code;
        if (t->bits == 16)
            ((int16_t *)to)[i] = (int16_t)code;
        else
            ((uint8_t *)to)[i] = (uint8_t)code;
    }
}

static int take_window(ek_task *task, void *context, char *error) {
    ek_listener *l = context;
    (void)error;
    if (l->count < l->window)
        return 1;
    put_window(l);
    for (int i = 0; i < l->inputs; i++)
        task->given[i] = l->given[i];
    return 0;
}

/* Whether a label is not one for silence and the like. */
static int is_word(const char *label) {
    static const char *const nothing[] = {"silence", "unknown", "background", "background noise",
                                          "noise",   "other",   "negative"};
    char name[EK_APP_LABEL_BYTES];
    snprintf(name, sizeof name, "%s", label + strspn(label, "_ "));
    for (size_t end = strlen(name); end && strchr("_ ", name[end - 1]); end--)
        name[end - 1] = 0;
    for (char *at = name; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        if (!strcasecmp(name, nothing[i]))
            return 0;
    return 1;
}

/* What has ended at this gate. */
static void finish(ek_listener *l, const ek_task *task, int number) {
    gate *g = &l->gates[number];
    double start = g->start, end = g->end;
    g->is_on = 0;
    if (l->is_vad && end - start < LEAST)
        return;
    if (l->is_vad)
        start -= MARGIN, end += MARGIN;
    if (l->queued == l->queue_room) {
        const int room = 2 * l->queue_room + 4;
        ek_heard *larger = realloc(l->queue, sizeof *larger * (size_t)room);
        if (!larger) {
            l->failed = 1;
            return;
        }
        l->queue = larger, l->queue_room = room;
    }
    ek_heard *made = &l->queue[l->queued++];
    *made = (ek_heard){
        .start = start < 0 ? 0 : start, .end = end, .score = (float)g->best, .number = number};
    ek_put_label(task, number, made->label);
}

static void follow(ek_listener *l, const ek_task *task, int number, double score, double start,
                   double end) {
    gate *g = &l->gates[number];
    if (score >= (g->is_on ? OFF : ON)) {
        if (!g->is_on)
            *g = (gate){.is_on = 1, .start = start};
        g->best = score > g->best ? score : g->best, g->end = end;
    } else if (g->is_on && end - g->end >= (l->is_vad ? GAP : 0)) {
        finish(l, task, number);
    }
}

static int give_scores(ek_task *task, void *context, char *error) {
    ek_listener *l = context;
    const float *scores = task->results[task->output];
    const double start = (double)(l->is_vad ? l->heard_to : l->first) / l->rate;
    l->heard_to = l->first + l->window;
    const double end = (double)l->heard_to / l->rate, part = (end - start) / (double)l->classes;
    char label[EK_APP_LABEL_BYTES];
    for (int i = 0; i < l->inputs; i++)
        if (l->carried[i] >= 0)
            memcpy(l->given[i], task->results[l->carried[i]], bytes_of(&task->ins[i]));
    for (int n = 0; l->is_vad && n < (int)l->classes; n++) /* equally long parts of the window */
        follow(l, task, 0, (double)scores[n], start + n * part, start + (n + 1) * part);
    for (int n = 0; !l->is_vad && n < (int)l->classes; n++) {
        /* A word is in several windows: their mean is surer than each. */
        const double score = (double)scores[n];
        l->scores[n] = l->overlaps && l->has_last ? (score + l->before[n]) / 2 : score;
        l->before[n] = score;
        ek_put_label(task, n, label);
        if (l->classes == 1 || is_word(label))
            follow(l, task, n, l->scores[n], start, end);
    }
    l->has_last = 1;
    const int64_t used = l->step < l->count ? l->step : l->count;
    if (l->ends) {
        memmove(l->earlier, l->earlier + used, sizeof *l->earlier * (size_t)(l->window - used));
        memcpy(l->earlier + l->window - used, l->samples, sizeof *l->samples * (size_t)used);
    }
    l->count -= used, l->first += l->step;
    memmove(l->samples, l->samples + used, sizeof *l->samples * (size_t)l->count);
    if (l->failed)
        snprintf(error, EK_TASK_ERROR, "expected memory for what was heard, found none; free some");
    return l->failed ? -1 : l->is_padded ? 0 : EK_AGAIN;
}

static int hand_over(ek_listener *l, ek_heard *heard, int most) {
    const int count = l->queued < most ? l->queued : most < 0 ? 0 : most;
    if (count)
        memcpy(heard, l->queue, sizeof *heard * (size_t)count);
    l->queued -= count;
    if (l->queued)
        memmove(l->queue, l->queue + count, sizeof *heard * (size_t)l->queued);
    return count;
}

static int run(ek_listener *l, int (*take)(ek_task *, void *, char *)) {
    const ek_use use = {"keyword or vad", l, listens, take, give_scores};
    return ek_app_use(l->app, &use);
}

ek_listener *ek_app_listen(ek_app *app) {
    ek_listener *l = calloc(1, sizeof *l);
    if (!l) {
        ek_app_fail(app, "expected memory for a listener, found none; free some");
        return NULL;
    }
    l->app = app;
    if (run(l, take_model) == 0)
        return l;
    ek_listener_close(l);
    return NULL;
}

int ek_listener_feed(ek_listener *l, const float *samples, int64_t count, ek_heard *heard,
                     int most) {
    if (count > 0 && l->count + count > l->room) {
        const int64_t room = 2 * (l->count + count);
        float *larger = realloc(l->samples, sizeof *larger * (size_t)room);
        if (!larger)
            return ek_app_fail(l->app, "expected memory for samples, found none; feed fewer");
        l->samples = larger, l->room = room;
    }
    if (count > 0) {
        memcpy(l->samples + l->count, samples, sizeof *samples * (size_t)count);
        l->count += count;
    }
    return run(l, take_window) < 0 ? -1 : hand_over(l, heard, most);
}

/* The end of all gates. */
static int take_end(ek_task *task, void *context, char *error) {
    ek_listener *l = context;
    (void)error;
    for (int n = 0; n < (int)l->classes; n++)
        if (l->gates[n].is_on)
            finish(l, task, n);
    return 1;
}

int ek_listener_finish(ek_listener *l, ek_heard *heard, int most) {
    const int64_t rest = l->window - l->count;
    if (!l->is_padded && rest > 0 && l->first + l->count > l->heard_to) {
        if (l->ends) {
            memmove(l->samples + rest, l->samples, sizeof *l->samples * (size_t)l->count);
            memcpy(l->samples, l->earlier + l->window - rest, sizeof *l->samples * (size_t)rest);
            l->first -= rest;
        } else { /* silence follows */
            memset(l->samples + l->count, 0, sizeof *l->samples * (size_t)rest);
        }
        l->count = l->window, l->is_padded = 1;
        if (run(l, take_window) < 0)
            return -1;
    }
    return run(l, take_end) < 0 ? -1 : hand_over(l, heard, most);
}

void ek_listener_close(ek_listener *l) {
    if (!l)
        return;
    for (int i = 0; i < l->inputs; i++)
        free(l->given[i]);
    free(l->samples), free(l->earlier), free(l->scores), free(l->before), free(l->gates);
    free(l->queue);
    free(l);
}

static int is_sound(const ek_task *task, const void *context) {
    return listens(task, context) || ek_task_is(task, "transcribe");
}

static int take_rate(ek_task *task, void *context, char *error) {
    (void)error;
    *(int *)context = task->rate;
    return 1;
}

int ek_app_rate(ek_app *app) {
    int rate = -1;
    const ek_use use = {"keyword, vad or transcribe", &rate, is_sound, take_rate, NULL};
    ek_app_use(app, &use);
    return rate;
}
