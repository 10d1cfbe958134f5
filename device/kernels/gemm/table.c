/* See table.h. The host's compiler/tables/gemm_table.py documents the look-up rules and its
 * gemm_blob.py the byte layout. */
#include "table.h"
#include <math.h>
#include <stdlib.h>
#include "lookup_cache.h"
#include "blocks.h"

/* With fused multiply-adds, distances would differ from the host's in the last bit and change
 * ties. */
#pragma STDC FP_CONTRACT OFF

enum { SCALE, M, N, K, FEATURES }; /* numbers of features in a priority */
enum { MOST_ROWS = 1 << 24, KINDS = 12, NAME = 64 };
static const int64_t LARGEST = (int64_t)1 << 60; /* limit for entries, so that differences cannot
                                                    overflow */
static const char MAGIC[8] = "EKGEMMT3";

typedef struct {
    char magic[8];
    uint32_t rows, tie_high, entries[FEATURES];
    uint8_t priority[FEATURES];
    uint32_t zero;
    char platform[NAME];
} header;

typedef struct {
    int32_t feature[FEATURES], dtype, threads;
} key;

typedef struct {
    key key;
    ek_gemm_method how; /* mr = 0: use the analytic method */
    int64_t m, k, n;    /* the measured product */
    double gflops;
    int32_t relaxes; /* may be used for neighbors */
    int32_t radius;  /* maximum squared distance at which it applies, in hundredths; 0: unlimited */
} row;

typedef struct {
    double m, k, n;
} logs;

typedef ek_gemm_query query;

struct ek_gemm_table {
    header head;
    const int64_t *bounds[FEATURES]; /* bounds[f][i]: the smallest value at position i + 1 */
    const row *rows;
    logs *log;      /* of each row's shape */
    uint32_t *slot; /* row + 1 by hash; 0: free */
    uint32_t mask;
    ek_gemm_lookup_cache cache;
    uint64_t copy[]; /* the table's bytes */
};

static uint64_t mixed(uint64_t h) {
    h *= 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static uint64_t hash_key(const key *k) {
    uint64_t h = 0;
    for (int f = 0; f < FEATURES; f++)
        h = h << 16 ^ (uint64_t)k->feature[f];
    return mixed(h ^ mixed((uint64_t)k->dtype << 32 ^ (uint64_t)k->threads));
}

static int same_key(const key *a, const key *b) {
    return !memcmp(a, b, sizeof *a);
}

/* -- opening ------------------------------------------------------------------------------- */

static int ascending(const int64_t *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (values[i] < 0 || values[i] > LARGEST || (i && values[i] <= values[i - 1]))
            return 0;
    return count > 0;
}

/* Converts a sequence to the bounds between its entries; the table determines which entry wins at
 * the midpoint. */
static void make_bounds(int64_t *values, uint32_t count, int tie_high) {
    for (uint32_t i = 0; i + 1 < count; i++) {
        int64_t difference = values[i + 1] - values[i];
        values[i] += tie_high ? (difference + 1) / 2 : difference / 2 + 1;
    }
}

static int is_valid_row(const header *h, const row *r) {
    for (int f = 0; f < FEATURES; f++)
        if ((uint32_t)r->key.feature[f] >= h->entries[f])
            return 0;
    const ek_gemm_method *w = &r->how;
    int sizes = w->mc >= 1 && w->kc >= 1 && w->nc >= 1 && w->mr >= 1 && w->nr >= 1;
    return (uint32_t)r->key.dtype < KINDS && r->key.threads >= 1 && (sizes || !w->mr) &&
           w->pack_a <= 1 && w->pack_b <= 1 && w->split <= 1 && r->m >= 0 && r->k >= 0 &&
           r->n >= 0 && isfinite(r->gflops);
}

/* The size according to the header; 0 if the header is not valid. */
static uint64_t expected_bytes(const header *h) {
    uint64_t entries = 0;
    unsigned seen = 0;
    for (int f = 0; f < FEATURES; f++) {
        entries += h->entries[f];
        seen |= h->priority[f] < FEATURES ? 1u << h->priority[f] : 0;
    }
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) || h->rows > MOST_ROWS ||
        seen != (1u << FEATURES) - 1 || h->platform[NAME - 1])
        return 0;
    return sizeof *h + entries * sizeof(int64_t) + h->rows * sizeof(row);
}

/* Returns 0 if two rows have the same key. */
static int place(ek_gemm_table *t, uint32_t index) {
    const key *k = &t->rows[index].key;
    uint32_t at = (uint32_t)hash_key(k) & t->mask;
    for (; t->slot[at]; at = (at + 1) & t->mask)
        if (same_key(&t->rows[t->slot[at] - 1].key, k))
            return 0;
    t->slot[at] = index + 1;
    return 1;
}

static int fill(ek_gemm_table *t) {
    const header *h = &t->head;
    int64_t *values = (int64_t *)t->copy;
    for (int f = 0; f < FEATURES; values += h->entries[f++]) {
        if (!ascending(values, h->entries[f]))
            return 0;
        make_bounds(values, h->entries[f], h->tie_high != 0);
        t->bounds[f] = values;
    }
    t->rows = (const row *)values;
    for (t->mask = 15; t->mask < 2 * h->rows;)
        t->mask = 2 * t->mask + 1;
    t->slot = calloc((size_t)t->mask + 1, sizeof *t->slot);
    t->log = malloc(((size_t)h->rows + 1) * sizeof *t->log);
    if (!t->slot || !t->log)
        return 0;
    for (uint32_t i = 0; i < h->rows; i++) {
        const row *r = &t->rows[i];
        if (!is_valid_row(h, r) || !place(t, i))
            return 0;
        t->log[i] = (logs){log1p((double)r->m), log1p((double)r->k), log1p((double)r->n)};
    }
    return 1;
}

ek_gemm_table *ek_gemm_table_open(const void *blob, size_t bytes) {
    header head;
    if (!blob || bytes < sizeof head)
        return NULL;
    memcpy(&head, blob, sizeof head);
    if (expected_bytes(&head) != bytes)
        return NULL;
    size_t size = (sizeof(ek_gemm_table) + bytes - sizeof head + 63) / 64 * 64;
    ek_gemm_table *t = aligned_alloc(64, size);
    if (!t)
        return NULL;
    memset(t, 0, size);
    t->head = head;
    memcpy(t->copy, (const char *)blob + sizeof head, bytes - sizeof head);
    if (fill(t))
        return t;
    ek_gemm_table_close(t);
    return NULL;
}

void ek_gemm_table_close(ek_gemm_table *t) {
    if (!t)
        return;
    free(t->slot);
    free(t->log);
    free(t);
}

const char *ek_gemm_table_platform(const ek_gemm_table *t) {
    return t->head.platform;
}

/* -- looking up ---------------------------------------------------------------------------- */

/* Binary GCD: at matrix sizes, one division costs more than the steps it saves. */
static uint64_t gcd(uint64_t a, uint64_t b) {
    if (!a || !b)
        return a | b;
    int twos = __builtin_ctzll(a | b);
    a >>= __builtin_ctzll(a);
    b >>= __builtin_ctzll(b);
    while (a != b) {
        uint64_t low = a < b ? a : b, difference = a < b ? b - a : a - b;
        b = difference >> __builtin_ctzll(a - b); /* both signs have the same trailing zeros */
        a = low;
    }
    return a << twos;
}

static uint64_t scale_of(uint64_t m, uint64_t n, uint64_t k) {
    uint64_t g = gcd(m, n);
    if (g > 1)
        g = gcd(g, k % g);
    else if (!g)
        g = k;
    return g ? g : 1;
}

/* Position of the nearest entry: the number of bounds that the value has passed. */
static int32_t index_of(const ek_gemm_table *t, int feature, uint64_t value) {
    const int64_t *bound = t->bounds[feature];
    uint32_t count = t->head.entries[feature] - 1;
    int64_t index = 0;
    for (uint32_t i = 0; i < count; i++)
        index += (int64_t)value >= bound[i];
    return (int32_t)index;
}

static key key_of(const ek_gemm_table *t, const query *q) {
    uint64_t m = (uint64_t)q->m, n = (uint64_t)q->n, k = (uint64_t)q->k;
    uint64_t g = scale_of(m, n, k);
    if (g > 1) {
        m /= g;
        n /= g;
        k /= g;
    }
    key found = {.dtype = q->dtype, .threads = q->threads};
    found.feature[SCALE] = index_of(t, SCALE, g);
    found.feature[M] = index_of(t, M, m);
    found.feature[N] = index_of(t, N, n);
    found.feature[K] = index_of(t, K, k);
    return found;
}

static const row *exact(const ek_gemm_table *t, const key *k) {
    uint32_t at = (uint32_t)hash_key(k) & t->mask;
    for (; t->slot[at]; at = (at + 1) & t->mask)
        if (same_key(&t->rows[t->slot[at] - 1].key, k))
            return &t->rows[t->slot[at] - 1];
    return NULL;
}

static double distance_of(const logs *known, const logs *wanted) {
    double dm = known->m - wanted->m, dk = known->k - wanted->k, dn = known->n - wanted->n;
    return dm * dm + dk * dk + dn * dn;
}

static logs logs_of(const query *q) {
    return (logs){log1p((double)q->m), log1p((double)q->k), log1p((double)q->n)};
}

/* The best of the rows that share the feature: most other features equal, then nearest shape, then
 * highest rate, then first, because rows are ordered by key. */
static const row *relaxed(const ek_gemm_table *t, const key *k, const query *q, int feature) {
    const row *best = NULL;
    int best_different = 0;
    double best_distance = 0;
    const logs wanted = logs_of(q);
    for (uint32_t i = 0; i < t->head.rows; i++) {
        const row *r = &t->rows[i];
        if (r->key.dtype != k->dtype || r->key.feature[feature] != k->feature[feature])
            continue;
        int different = r->key.threads != k->threads;
        for (int f = 0; f < FEATURES; f++)
            different += r->key.feature[f] != k->feature[f];
        double distance = distance_of(&t->log[i], &wanted);
        int better = !best                         ? 1
                     : different != best_different ? different < best_different
                     : distance != best_distance   ? distance < best_distance
                                                   : r->gflops > best->gflops;
        if (better) {
            best = r;
            best_different = different;
            best_distance = distance;
        }
    }
    return best;
}

/* Tiles of one row or column are only for products with a vector. */
static int fits(const ek_gemm_method *how, const query *q) {
    const int with_vector = how->mr == 1 || how->nr == 1;
    return !with_vector || q->m == 1 || q->n == 1;
}

static int is_transposed(const ek_gemm_method *how) {
    return ek_gemm_is_transposed(ek_gemm_families[EK_GEMM_F32], how->mr, how->nr);
}

static int within_radius(const ek_gemm_table *t, const row *r, const query *q) {
    const logs wanted = logs_of(q);
    return !r->radius || 100.0 * distance_of(&t->log[r - t->rows], &wanted) <= r->radius;
}

static const row *row_for(const ek_gemm_table *t, const query *q, int *rule) {
    key k = key_of(t, q);
    const row *found = exact(t, &k);
    *rule = EK_GEMM_EXACT;
    for (int p = 0; !found && p < FEATURES; p++) {
        int feature = t->head.priority[p];
        found = relaxed(t, &k, q, feature);
        *rule = EK_GEMM_RELAXED + feature;
    }
    return found;
}

static ek_gemm_method find(const ek_gemm_table *t, const query *q, int *rule) {
    const row *found = row_for(t, q, rule);
    const ek_gemm_method analytic = ek_gemm_default(q->dtype, q->threads, q->m, q->n, q->k);
    const int taken =
        found && (*rule == EK_GEMM_EXACT
                      ? within_radius(t, found, q)
                      : found->relaxes && is_transposed(&found->how) == is_transposed(&analytic));
    if (taken && found->how.mr && fits(&found->how, q))
        return found->how;
    if (*rule != EK_GEMM_EXACT || !taken || found->how.mr)
        *rule = EK_GEMM_ANALYTIC;
    return analytic;
}

/* One thread computes a small product, whatever their number (ek_gemm_threads). */
static query query_of(int dtype, int threads, long m, long n, long k) {
    const double products = /* empty extents count as 1, as in ek_gemm_default */
        (double)ek_max(m, 1) * (double)ek_max(n, 1) * (double)ek_max(k, 1);
    return (query){m, n, k, dtype, products < EK_GEMM_SHARED ? 1 : threads};
}

ek_gemm_method ek_gemm_lookup(ek_gemm_table *t, int dtype, int threads, long m, long n, long k,
                              int *rule) {
    query q = query_of(dtype, threads, m, n, k);
    int ignored;
    rule = rule ? rule : &ignored;
    if (!t) {
        *rule = EK_GEMM_ANALYTIC;
        return ek_gemm_default(dtype, threads, m, n, k);
    }
    uint64_t h = mixed((uint64_t)m << 40 ^ (uint64_t)n << 20 ^ (uint64_t)k);
    h = mixed(h ^ (uint64_t)dtype << 32 ^ (uint64_t)q.threads);
    ek_gemm_cache_entry entry = {.query = q};
    if (ek_gemm_cache_find(&t->cache, h, &q, &entry.how, rule))
        return entry.how;
    entry.how = find(t, &q, rule);
    ek_gemm_cache_add(&t->cache, h, &entry, *rule);
    return entry.how;
}

int ek_gemm_row_shape(const ek_gemm_table *t, int dtype, int threads, long m, long n, long k,
                      int64_t shape[3]) {
    query q = query_of(dtype, threads, m, n, k);
    int rule;
    const row *found = t ? row_for(t, &q, &rule) : NULL;
    if (found) {
        shape[0] = found->m;
        shape[1] = found->k;
        shape[2] = found->n;
    }
    return found != NULL;
}
