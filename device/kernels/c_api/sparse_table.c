#include "sparse_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 64, WINDOW = 4096 };

static const char *const stored[] = {"f32", "f64", "f16", "s8"};
static const char *const spreads[] = {"even", "random", "skewed"};
static const char *const bands[] = {"narrow", "banded", "wide"};
static const int64_t rows_sequence[] = {100, 1000, 10000, 100000, 1000000, 10000000};
static const int64_t mean_sequence[] = {1, 3, 10, 30, 100, 300, 1000};
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* -- reading ------------------------------------------------------------------------------- */

/* The value of a key in the text up to `end`, or NULL. */
static const char *value_of(const char *text, const char *end, const char *key) {
    char quoted[32];
    const int length = snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(text, quoted);
    return at && at < end ? at + length : NULL;
}

static int read_number(const char *text, const char *end, const char *key, int64_t least,
                       int32_t *to) {
    const char *at = value_of(text, end, key);
    char *after;
    const long long number = at ? strtoll(at, &after, 10) : 0;
    *to = (int32_t)number;
    return at && after > at && number >= least && number <= INT32_MAX;
}

static int read_flag(const char *text, const char *end, const char *key, int32_t *to) {
    const char *at = value_of(text, end, key);
    *to = at && !strncmp(at, "true", 4);
    return *to || (at && !strncmp(at, "false", 5));
}

/* Copies a string; longer ones are cut. */
static int read_text(const char *text, const char *end, const char *key, char *to) {
    const char *at = value_of(text, end, key);
    int size = 0;
    if (!at || *at++ != '"')
        return 0;
    for (; at < end && *at != '"'; at++)
        if (size < EK_SPARSE_NAME - 1)
            to[size++] = *at;
    to[size] = 0;
    return at < end;
}

static int read_name(const char *text, const char *end, const char *key, const char *const *names,
                     int count, int32_t *to) {
    char found[EK_SPARSE_NAME];
    if (!read_text(text, end, key, found))
        return 0;
    for (*to = 0; *to < count; ++*to)
        if (!strcmp(names[*to], found))
            return 1;
    return 0;
}

static int read_row(const char *at, const char *end, ek_sparse_row *to) {
    const char *how = value_of(at, end, "settings");
    if (!how || !read_name(at, end, "stored", stored, COUNT(stored), &to->dtype) ||
        !read_number(at, end, "rows", 0, &to->rows) ||
        !read_number(at, end, "mean", 0, &to->mean) ||
        !read_name(at, end, "spread", spreads, COUNT(spreads), &to->spread) ||
        !read_name(at, end, "band", bands, COUNT(bands), &to->band) ||
        !read_text(at, end, "matrix", to->matrix))
        return 0;
    to->by_rule = *how == '"';
    ek_sparse_settings *s = &to->how;
    return to->by_rule ||
           (read_number(how, end, "width", 0, &s->width) &&
            read_number(how, end, "window", 0, &s->window) &&
            read_number(how, end, "wide_from", 0, &s->wide_from) &&
            read_flag(how, end, "diagonal", &s->diagonal) &&
            read_flag(how, end, "windows", &s->windows) &&
            read_number(how, end, "index_bytes", 0, &s->index_bytes) && s->index_bytes <= 4 &&
            s->index_bytes != 3 && read_number(how, end, "columns", 0, &s->columns));
}

static int read_rows(const char *at, ek_sparse_table *t) {
    for (int64_t i = 0; i < t->count; i++) {
        const char *end = strchr(at, '\n');
        if (!end || end[-1] != (i + 1 < t->count ? ',' : '}') || !read_row(at, end, &t->row[i]))
            return 0;
        at = end + 1;
    }
    return 1;
}

/* A row of the table is a line; sparse_table.py writes it so. */
ek_sparse_table *ek_sparse_table_open(const char *text) {
    static const char head[] = "{\n \"schema\": \"edgekit.kb.spmv/1\",\n", last[] = "]\n}\n";
    const size_t size = strlen(text);
    const char *end = text + size - (sizeof last - 1);
    const char *rows = strstr(text, "\n \"rows\": [");
    if (size < sizeof last || strcmp(end, last) || strncmp(text, head, sizeof head - 1) || !rows)
        return NULL;
    int64_t count = 0;
    for (const char *at = rows; (at = strstr(at, "\n  {")); at++)
        count++;
    ek_sparse_table *t = calloc(1, sizeof *t + (size_t)count * sizeof *t->row);
    if (!t)
        return NULL;
    t->count = count;
    const char *first = strchr(rows + 1, '\n') + 1;
    if (read_text(text, rows, "platform", t->platform) && read_rows(first, t))
        return t;
    ek_sparse_table_close(t);
    return NULL;
}

void ek_sparse_table_close(ek_sparse_table *table) {
    free(table);
}

/* -- looking up ---------------------------------------------------------------------------- */

/* Position of the entry that is nearest by ratio. */
static int nearest(double value, const int64_t *sequence, int count) {
    int right = 0;
    while (right < count && (double)sequence[right] < value)
        right++;
    if (right == 0 || right == count)
        return right < count ? right : count - 1;
    return value * value > (double)(sequence[right - 1] * sequence[right]) ? right : right - 1;
}

static int spread_of(const ek_rows_features *f) {
    const double relative = f->mean != 0 ? f->deviation / f->mean : 0;
    return (relative > 0.15) + (relative > 0.8);
}

static int band_of(const ek_rows_features *f, int64_t cols) {
    return f->span <= 8 * f->mean ? 0 : f->span <= 0.1 * (double)cols ? 1 : 2;
}

/* The patent's width of a block: `lanes` of a strip, `line` elements of a cache line. */
static int64_t width_of(double mean, int64_t lanes, int64_t line) {
    const int64_t rounded = (int64_t)(mean + 0.5), x = rounded < 1 ? 1 : rounded;
    if (x > line)
        return x % 2 == 0 ? 2 * x : 2 * (x + 1);
    if (lanes < x && x < line)
        return x / lanes * lanes;
    return x < lanes ? (x + 9) / 10 * 10 : x;
}

static ek_sparse_settings rule_for(int dtype, const ek_rows_features *f) {
    const int64_t line = LINE_BYTES / ek_sparse_value_bytes(dtype);
    const int64_t width = width_of(f->mean, ek_sparse_height(dtype), line);
    return (ek_sparse_settings){.width = width > INT32_MAX ? INT32_MAX : (int32_t)width,
                                .window = WINDOW,
                                .diagonal = 1,
                                .windows = 1};
}

static int is_better(const ek_sparse_row *a, int distance, const ek_sparse_row *b, int least) {
    if (distance != least)
        return distance < least;
    return a->rows != b->rows ? a->rows < b->rows : a->mean < b->mean;
}

ek_sparse_answer ek_sparse_table_find(const ek_sparse_table *t, const ek_rows *a) {
    const ek_rows_features f = ek_rows_measure(a);
    const int rows = nearest((double)a->rows, rows_sequence, COUNT(rows_sequence));
    const int mean = nearest(f.mean, mean_sequence, COUNT(mean_sequence));
    const int spread = spread_of(&f), band = band_of(&f, a->cols);
    ek_sparse_answer answer = {rule_for(a->dtype, &f), EK_SPARSE_PATENT, ""};
    const ek_sparse_row *best = NULL;
    int least = 0;
    long long alike = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const ek_sparse_row *r = &t->row[i];
        if (r->dtype != a->dtype || r->spread != spread || r->band != band)
            continue;
        const int distance = abs(r->rows - rows) + abs(r->mean - mean);
        alike++;
        if (!best || is_better(r, distance, best, least))
            best = r, least = distance;
    }
    if (!best) {
        snprintf(answer.why, sizeof answer.why, "no row of %s, %s rows, %s band", stored[a->dtype],
                 spreads[spread], bands[band]);
        return answer;
    }
    const char *beaten = best->by_rule ? ", where nothing beat the default rule" : "";
    answer.rule = least ? EK_SPARSE_NEAREST : EK_SPARSE_EXACT;
    if (least)
        snprintf(answer.why, sizeof answer.why,
                 "nearest of %lld rows of its class, measured on %s%s", alike, best->matrix,
                 beaten);
    else
        snprintf(answer.why, sizeof answer.why, "measured on %s%s", best->matrix, beaten);
    if (!best->by_rule) {
        const int32_t by_rule = answer.how.width;
        answer.how = best->how;
        answer.how.width = answer.how.width ? answer.how.width : by_rule;
    }
    return answer;
}
