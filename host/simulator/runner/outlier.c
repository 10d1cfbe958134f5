/* Multiplies activations by 8-bit weights with the outlier split, with warm caches:
 *
 *   runner outlier LIBRARY M K N THREADS THRESHOLD PATH...
 *
 * LIBRARY: a board's kernels; PATH: ek_outlier_path. The files table, x, w and scale contain the
 * board's table of products, from which the kernels choose their methods, X [m][k] as f32, W [k][n]
 * as s8, and the scale of each column, padded. Each path is a region between marks; `y`
 * receives the result of the first, `report` its path, outliers and bytes as int64, and `costs`
 * its costs as doubles: 32-bit ARM converts them in a library that the runner lacks. */
#include <stdint.h>
#include <stdlib.h>

#include "ek.h"
#include "outlier/outlier.h"
#include "runner.h"

enum { FIRST_PATH = 7, SIDE_B = 1, ALIGN = 64 };

typedef struct {
    int (*run)(const ek_outlier_args *, void *, size_t, ek_pool *, ek_outlier_report *);
    ek_outlier_args args;
    ek_outlier_report report;
    void *workspace;
    size_t bytes;
    ek_pool *pool;
} product;

static void multiply(void *what) {
    product *p = what;
    if (p->run(&p->args, p->workspace, p->bytes, p->pool, &p->report) != EK_OUTLIER_DONE)
        fail("expected an outlier split to succeed, found", "an error");
}

/* What the workspace must hold depends on the outliers, which are found in it. */
static void allocate(product *p) {
    while (p->run(&p->args, p->workspace, p->bytes, p->pool, &p->report) == EK_OUTLIER_MEMORY) {
        free(p->workspace);
        p->bytes = p->report.bytes;
        p->workspace = block(p->bytes);
    }
}

static ek_gemm_table *opened_table(const library *lib) {
    ek_gemm_table *(*open)(const void *, size_t);
    *(void **)&open = required_symbol(lib, "ek_gemm_table_open");
    size_t bytes;
    const void *data = read_file("table", &bytes);
    ek_gemm_table *table = open(data, bytes);
    if (!table)
        fail("expected a table of products, found", "another file");
    return table;
}

static ek_outlier_weights packed(const library *lib, ek_gemm_table *table, long n, long k) {
    ek_gemm_method (*packing_of)(ek_gemm_table *, long, long);
    int (*dtype_of)(void);
    size_t (*bytes_of)(int, int, long, long, const ek_gemm_method *);
    void (*pack)(int, int, long, long, const ek_gemm_method *, const void *, long, long, void *);
    void (*excess_of)(const int8_t *, long, long, int32_t *);
    *(void **)&packing_of = required_symbol(lib, "ek_outlier_packing");
    *(void **)&dtype_of = required_symbol(lib, "ek_outlier_dtype");
    *(void **)&bytes_of = required_symbol(lib, "ek_gemm_packed_bytes");
    *(void **)&pack = required_symbol(lib, "ek_gemm_pack");
    *(void **)&excess_of = required_symbol(lib, "ek_outlier_excess");
    size_t bytes;
    const int8_t *w = read_file("w", &bytes);
    const ek_gemm_method how = packing_of(table, n, k);
    ek_outlier_weights made = {.n = n, .k = k, .group = k, .how = how};
    made.scale = read_file("scale", &bytes);
    int32_t *excess = block(bytes);
    excess_of(w, n, k, excess);
    made.excess = excess;
    made.b_bytes = (bytes_of(dtype_of(), SIDE_B, n, k, &how) + ALIGN - 1) / ALIGN * ALIGN;
    void *b = block(made.b_bytes);
    pack(dtype_of(), SIDE_B, n, k, &how, w, n, 1, b);
    made.b = b;
    return made;
}

int time_outlier(int argc, char **argv) {
    if (argc <= FIRST_PATH)
        fail("expected a path of an outlier split, found", "none");
    const library *lib = usable_library(argv[1]);
    const int threads = (int)number_at(argv[5], NULL);
    product p = {.pool = pool_of(lib, threads)};
    ek_gemm_method (*method_of)(ek_gemm_table *, const ek_outlier_weights *, long, int);
    *(void **)&method_of = required_symbol(lib, "ek_outlier_method");
    *(void **)&p.run = required_symbol(lib, "ek_outlier_run");
    const long m = number_at(argv[2], NULL), k = number_at(argv[3], NULL);
    const long n = number_at(argv[4], NULL);
    ek_gemm_table *table = opened_table(lib);
    const ek_outlier_weights weights = packed(lib, table, n, k);
    size_t bytes;
    p.args = (ek_outlier_args){.weights = &weights, .m = m, .x_row = k, .y_row = n};
    p.args.x = read_file("x", &bytes);
    p.args.y = block((size_t)(m * n) * sizeof(float));
    p.args.check_finite = 1, p.args.rows_per_scale = 1;
    p.args.threshold = (float)number_at(argv[6], NULL);
    p.args.how = method_of(table, &weights, m, threads);
    for (int i = FIRST_PATH; i < argc; i++) {
        p.args.path = (int)number_at(argv[i], NULL);
        allocate(&p);
        time_call(multiply, &p);
        if (i > FIRST_PATH)
            continue;
        const ek_outlier_report *r = &p.report;
        const int64_t found[] = {r->path, r->outliers, (int64_t)r->bytes};
        const double costs[] = {r->split_cost, r->float_cost};
        write_file("report", found, sizeof found);
        write_file("costs", costs, sizeof costs);
        write_file("y", p.args.y, (size_t)(m * n) * sizeof(float));
    }
    return 0;
}
