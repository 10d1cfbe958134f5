/* Multiplies pruned weights by the pixels of an image, with warm caches:
 *
 *   runner spmm LIBRARY DTYPE INDEX-BYTES ROWS COLS PIXELS THREADS PANELS PAIRS
 *
 * LIBRARY: a board's kernels; DTYPE: ek_sparse_dtype. The files start, index, values and scale
 * contain the arrays of ek_spmm_weights; pair, columns and packed those of its plan, of PANELS
 * times PAIRS pairs; x the pixels as f32. The product is a region between marks. */
#include <math.h>
#include <stdlib.h>

#include "ek.h"
#include "runner.h"
#include "sparse/sparse.h"

enum { ARGUMENTS = 10 };

typedef struct {
    void (*run)(const ek_spmm_args *, ek_pool *);
    ek_spmm_args args;
    ek_pool *pool;
} product;

static void multiply(void *what) {
    const product *p = what;
    p->run(&p->args, p->pool);
}

int time_spmm(int argc, char **argv) {
    if (argc != ARGUMENTS)
        fail("expected 9 arguments of spmm, found", argc > ARGUMENTS ? "more" : "fewer");
    const library *lib = usable_library(argv[1]);
    product p = {.pool = pool_of(lib, (int)number_at(argv[7], NULL))};
    *(void **)&p.run = required_symbol(lib, "ek_spmm");
    size_t bytes;
    ek_spmm_plan plan = {.panels = number_at(argv[8], NULL), .pairs = number_at(argv[9], NULL)};
    plan.pair = read_file("pair", &bytes);
    plan.columns = read_file("columns", &bytes);
    plan.values = read_file("packed", &bytes);
    ek_spmm_weights a = {.dtype = (int)number_at(argv[2], NULL), .plan = &plan};
    a.index_bytes = (int)number_at(argv[3], NULL);
    a.rows = number_at(argv[4], NULL), a.cols = number_at(argv[5], NULL);
    a.start = read_file("start", &bytes);
    a.index = read_file("index", &bytes);
    a.values = read_file("values", &bytes);
    a.scale = read_file("scale", &bytes);
    p.args.a = &a, p.args.copy = -1;
    p.args.pixels = p.args.x_row = p.args.y_row = number_at(argv[6], NULL);
    p.args.x = read_file("x", &bytes);
    p.args.y = block((size_t)(a.rows * p.args.pixels) * sizeof(float));
    p.args.low = -INFINITY, p.args.high = INFINITY;
    time_call(multiply, &p);
    return 0;
}
