/* Joins the leaves that a row reaches in an ensemble of decision trees. Compile-time parameters:
 * NAME, EK_SIMD, TX (type of x and of thresholds), JOIN_ADD, JOIN_MIN or JOIN_MAX, and FLAGS if
 * nodes have flags. */
#include "../kernel.h"

typedef struct {
    TX threshold;
    int32_t test;     /* feature << 2 | flags */
    int32_t child[2]; /* a node, or ~leaf */
} ek_tree_node;

typedef struct {
    int32_t target;
    float value;
} ek_tree_entry;

typedef struct {
    long rows, features, targets, trees;
    long block; /* rows per task: they share the nodes that the cache holds */
    long each;  /* entries per leaf, or 0 if that differs */
    const void *x, *nodes, *roots, *starts, *entries;
    void *y;
} ek_tree_ensemble_args;

#define EQUAL 1
#define MISSING 2

#ifdef JOIN_ADD
#define START 0.0f
#define JOIN(a, b) ((a) + (b))
#elif defined JOIN_MIN
#define START __builtin_inff()
#define JOIN(a, b) ((b) < (a) ? (b) : (a))
#else
#define START (-__builtin_inff())
#define JOIN(a, b) ((b) > (a) ? (b) : (a))
#endif

static inline long leaf_of(const ek_tree_node *nodes, int32_t at, const TX *x) {
    while (at >= 0) {
        const ek_tree_node *n = nodes + at;
        const TX v = x[n->test >> 2], limit = n->threshold;
#ifdef FLAGS
        const int equal = (v >= limit) | !(n->test & EQUAL);
        const int missing = ((n->test & MISSING) != 0) & (v != v);
        at = n->child[!(((v <= limit) & equal) | missing)];
#else
        at = n->child[!(v <= limit)];
#endif
    }
    return ~(long)at;
}

/* Task: a block of rows. */
void NAME(const void *args, long begin, long end) {
    const ek_tree_ensemble_args *a = args;
    const ek_tree_entry *entries = a->entries;
    const int32_t *roots = a->roots, *starts = a->starts;
    for (long t = begin; t < end; t++) {
        const long first = t * a->block, last = ek_min(first + a->block, a->rows);
        float *y = (float *)a->y;
        for (long i = first * a->targets; i < last * a->targets; i++)
            y[i] = START;
        for (long tree = 0; tree < a->trees; tree++)
            for (long r = first; r < last; r++) {
                const TX *x = (const TX *)a->x + r * a->features;
                const long leaf = leaf_of(a->nodes, roots[tree], x);
                const long from = a->each ? leaf * a->each : starts[leaf];
                const long to = a->each ? from + a->each : starts[leaf + 1];
                for (long e = from; e < to; e++) {
                    float *sum = y + r * a->targets + entries[e].target;
                    *sum = JOIN(*sum, entries[e].value);
                }
            }
    }
}
